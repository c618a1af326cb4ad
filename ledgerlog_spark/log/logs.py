"""Creates, opens, lists and deletes the logs of a cluster (LOGS.md#G1, LOGS.md#G8)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from random import Random

from ledgerlog_spark.client.arguments import check_callback, check_optional, check_type
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import (
    ConfigurationError,
    LogExistsError,
    LogNotFoundError,
)
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.maintenance.sweep_memory import PassClock, SweepMemory
from ledgerlog_spark.log.maintenance.sweeper import Sweeper
from ledgerlog_spark.log.ports import Ledgers
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.metadata.tree import CancelWatch, OnChange
from ledgerlog_spark.model import NO_ENTRY, LedgerMetadata
from ledgerlog_spark.protocol.log.commit.plan import created
from ledgerlog_spark.protocol.log.properties import check_log_name, new_properties
from ledgerlog_spark.protocol.log.seal import LOG_ID_KEY
from ledgerlog_spark.protocol.log.state.records import LogContent, LogHead, LogKind


class Logs:
    """The logs of one cluster, for one client.

    Attributes:
        store: The log store of the cluster.
    """

    def __init__(self, *, store: LogStore, ledgers: Ledgers, random: Random | None = None) -> None:
        """Create an object for the logs of `store`. `random` varies the pauses before retries.

        If `random` is None, each log gets its own generator.
        """
        self.store = store
        self._random = random
        self._ledgers = ledgers

    async def create(
        self,
        name: str,
        *,
        schema: bytes = b"",
        properties: Mapping[str, str] | None = None,
        kind: LogKind = LogKind.TRANSACTIONAL,
        content: LogContent = LogContent.ROWS,
    ) -> Log:
        """Create an empty log at version 0. The log is durable when the call returns.

        Args:
            name: The name of the log: 1 to 200 letters, digits, `.`, `_` and `-`.
            schema: The first schema of the log, as an Arrow schema message. If it is empty, the log
                has no schema yet.
            properties: Properties by option name. Properties that are not given have their
                defaults.
            kind: Kind of the log's writers: jobs that commit, or one leader at a time.
            content: The content of the log: rows or records.

        Raises:
            ConfigurationError: The name or a property is not valid; nothing was done.
            LogExistsError: A log with this name already exists.
            SchemaMismatchError: The schema is too large to be stored.
            MetadataUnknownError: The outcome is unknown; open the log, or create it again.
        """
        check_log_name(name)
        _check_new(schema, properties, kind, content)
        stored = new_properties(properties)
        head, pages = created(
            log_id=uuid.uuid4().hex,
            name=name,
            kind=kind,
            content=content,
            now_ms=await self.store.recent_ms(),
            token=uuid.uuid4().hex,
            schema=schema,
            properties=stored,
        )
        await self.store.create_log(head, pages)
        return self._log(name, head.log_id)

    async def open(self, name: str) -> Log:
        """Open the log with the name `name`.

        Raises:
            LogNotFoundError: The log does not exist, even after a sync.
            MetadataError: There is no cluster at the path of the service URI.
        """
        check_log_name(name)
        return self._log(name, await self.store.find(name))

    async def open_or_create(
        self,
        name: str,
        *,
        schema: bytes = b"",
        properties: Mapping[str, str] | None = None,
        kind: LogKind = LogKind.TRANSACTIONAL,
        content: LogContent = LogContent.ROWS,
    ) -> Log:
        """Open the log with the name `name`, or create it if it does not exist.

        The log is durable when the call returns. The arguments have the same meaning as in
        `create`. If the log exists, only the name is used.

        Raises:
            ConfigurationError: The name or a property is not valid; nothing was done.
            SchemaMismatchError: The schema is too large to be stored.
            MetadataError: There is no cluster at the path of the service URI, or the store failed.
            MetadataUnknownError: The outcome is unknown; a retry is safe.
        """
        check_log_name(name)
        _check_new(schema, properties, kind, content)
        try:
            return await self.open(name)
        except LogNotFoundError:
            pass
        try:
            return await self.create(
                name, schema=schema, properties=properties, kind=kind, content=content
            )
        except LogExistsError:
            return await self.open(name)

    def open_by_id(self, name: str, log_id: str) -> Log:
        """Open the log with the id `log_id` without a request to the store, for tasks of a job.

        Args:
            name: The name of the log. It is used in messages and for `Log.name`.
            log_id: The id of the log, as in `Log.log_id`.
        """
        check_id(name, log_id)
        return self._log(name, log_id)

    async def names(self) -> Sequence[str]:
        """Return the names of all logs, sorted.

        Raises:
            MetadataUnavailableError: The names could not be read.
        """
        return await self.store.names()

    async def now_ms(self) -> int:
        """Return an estimate of the time of the store's clock, whose times commits contain.

        The estimate is never later than the time of the clock.

        Raises:
            MetadataError: There is no cluster at the path of the service URI, or the store failed.
        """
        return await self.store.recent_ms()

    def watch_names(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` whenever logs may have been created or deleted.

        `on_change` runs on the event loop and must not block. Return a function that ends the
        watch.
        """
        check_callback(on_change)
        return self.store.watch_names(on_change)

    async def delete(self, name: str) -> None:
        """Delete a log. Its name is free immediately. Its ledgers stay for `deletedRetentionMs`.

        Raises:
            LogNotFoundError: The log does not exist.
        """
        await (await self.open(name)).delete()

    async def owner(self, ledger_id: int) -> str | None:
        """Return the name of the existing log that may list the ledger; None if there is none.

        Raises:
            LedgerNotFoundError: The ledger does not exist.
        """
        head = await self._head_of_owner(ledger_id)
        return None if head is None else head.name

    async def floor(self, ledger_id: int) -> int:
        """Return the last entry of the ledger that a log lists; NO_ENTRY if it is not listed.

        Raises:
            LedgerNotFoundError: The ledger does not exist.
        """
        head = await self._head_of_owner(ledger_id)
        if head is None:
            return NO_ENTRY
        return await self._log(head.name, head.log_id).floor(ledger_id)

    async def seal(self, ledger_id: int, *, password: bytes = b"") -> LedgerMetadata:
        """Fence, recover and close any ledger. All entries of the ledger that a log lists stay.

        Args:
            ledger_id: Id of the ledger.
            password: The ledger's password.

        Raises:
            NeedsOperatorError: Not all listed entries were found. The ledger was not closed.
            LedgerRecoveryError: Too few bookies answered. The ledger was not closed.
            LedgerNotFoundError: The ledger does not exist.
        """
        head = await self._head_of_owner(ledger_id)
        if head is None:
            return await self._ledgers.seal(ledger_id, password=password)
        return await self._log(head.name, head.log_id).seal(ledger_id, password=password)

    async def _head_of_owner(self, ledger_id: int) -> LogHead | None:
        custom = (await self._ledgers.ledger_metadata(ledger_id)).custom
        log_id = custom.get(LOG_ID_KEY, b"").decode(errors="replace")
        if not log_id.isalnum():
            return None
        await self.store.sync()
        found = await self.store.read_head(log_id)
        return None if found is None or found.value.deleted_ms else found.value

    def sweeper(
        self, *, memory: SweepMemory | None = None, clock: PassClock | None = None
    ) -> Sweeper:
        """Return a sweeper, which deletes ledgers and pages that no version of any log lists.

        Args:
            memory: Results of earlier passes, which save requests. If it is None, the pass reads
                everything.
            clock: The clock of the pass; if it is None, the store's clock is read.
        """
        check_optional("memory", memory, SweepMemory)
        return Sweeper(
            store=self.store,
            ledgers=self._ledgers,
            memory=memory,
            clock=clock,
            random=self._random,
        )

    def _log(self, name: str, log_id: str) -> Log:
        return Log(
            LogHost(name, log_id, store=self.store, ledgers=self._ledgers, random=self._random)
        )


def check_id(name: object, log_id: object) -> None:
    """Raise LocalProtocolError unless the name and the id of a log are of type str."""
    check_type("name", name, str)
    check_type("log_id", log_id, str)


def _check_new(schema: object, properties: object, kind: object, content: object) -> None:
    check_type("schema", schema, bytes)
    check_optional("properties", properties, Mapping)
    check_type("kind", kind, LogKind)
    check_type("content", content, LogContent)


def logs_of(client: LedgerClient) -> Logs:
    """Return the logs of the cluster of `client`. They can be used until the client is closed."""
    if client.services.logs is None:
        raise ConfigurationError(
            "this client supports ledgers only: connect with ledgerlog_spark.connect"
        )
    return Logs(store=client.services.logs, ledgers=client, random=client.services.random)
