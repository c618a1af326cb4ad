"""The handle of one log, transactional or led by a leader (docs/LOGS.md).

All methods run on the client's event loop. The modules in `blocking/` derive the blocking methods
from these methods.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from ledgerlog_spark.client.arguments import check_optional, check_type
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerNotFoundError
from ledgerlog_spark.log.committing.commits import LogCommits
from ledgerlog_spark.log.committing.schema_commits import SchemaCommits
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.maintenance.log_maintenance import LogMaintenance
from ledgerlog_spark.log.reading import committed_range, open_ends
from ledgerlog_spark.log.reading.end_watch import EndWatch
from ledgerlog_spark.log.records import check_leader_log
from ledgerlog_spark.metadata.tree import CancelWatch, OnChange
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.log.properties import check_has_properties
from ledgerlog_spark.protocol.log.read.versions import (
    HistoryMachine,
    LogState,
    StateMachine,
)
from ledgerlog_spark.protocol.log.seal import FloorMachine, since_offset
from ledgerlog_spark.protocol.log.state.records import VersionInterval

if TYPE_CHECKING:
    from ledgerlog_spark.log.leader.leader import Leader

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")


def _call_of(
    part: Callable[[Log], A], method: Callable[Concatenate[A, P], R]
) -> Callable[Concatenate[Log, P], R]:
    """Return a method of `Log` that calls `method` on the object that `part` returns."""

    @functools.wraps(method)
    def call(log: Log, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(part(log), *args, **kwargs)

    signature = inspect.signature(method)
    _, *parameters = signature.parameters.values()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(call)["__signature__"] = signature.replace(parameters=[own, *parameters])
    return call


_host: Callable[[Log], LogHost] = attrgetter("host")
_commits: Callable[[Log], LogCommits] = attrgetter("commits")
_schema_commits: Callable[[Log], SchemaCommits] = attrgetter("schema_commits")
_maintenance: Callable[[Log], LogMaintenance] = attrgetter("maintenance")


class Log:
    """A handle of one log. It has no connection of its own, so it need not be closed.

    Attributes:
        name: The name under which the log was opened.
        log_id: The log's id; a later log of the same name has another id.
        host: The object that runs the machines of this log. Other APIs of the log use this object.
        commits: The calls for the log's jobs and commits. Other APIs of the log use this object.
        schema_commits: The calls for commits that change the log's columns. Other APIs of the log
            use this object.
        maintenance: The calls for changes of the log that are not commits. Other APIs of the log
            use this object.
    """

    def __init__(self, host: LogHost) -> None:
        """Create a handle of a log. `host` runs the machines of this log."""
        self.name = host.name
        self.log_id = host.log_id
        self.host = host
        self.commits = LogCommits(host)
        self.schema_commits = SchemaCommits(host, self.commits)
        self.maintenance = LogMaintenance(host, self.commits)

    view = _call_of(_host, open_ends.view)
    snapshot = _call_of(_host, open_ends.snapshot)
    read_range = _call_of(_host, committed_range.read_range)
    begin = _call_of(_commits, LogCommits.begin)
    open_range = _call_of(_commits, LogCommits.open_range)
    commit = _call_of(_commits, LogCommits.commit)
    abort = _call_of(_commits, LogCommits.abort)
    add_columns = _call_of(_schema_commits, SchemaCommits.add_columns)
    change_schema = _call_of(_schema_commits, SchemaCommits.change_schema)
    has_batch = _call_of(_commits, LogCommits.has_batch)
    switch = _call_of(_commits, LogCommits.switch)
    release = _call_of(_commits, LogCommits.release)
    version_at = _call_of(_maintenance, LogMaintenance.version_at)
    truncate = _call_of(_maintenance, LogMaintenance.truncate)
    retain = _call_of(_maintenance, LogMaintenance.retain)
    restore = _call_of(_maintenance, LogMaintenance.restore)
    set_properties = _call_of(_maintenance, LogMaintenance.set_properties)
    check = _call_of(_maintenance, LogMaintenance.check)
    delete_orphans = _call_of(_maintenance, LogMaintenance.delete_orphans)
    delete = _call_of(_maintenance, LogMaintenance.delete)
    delete_if_unused = _call_of(_maintenance, LogMaintenance.delete_if_unused)

    async def state(self, *, is_fresh: bool = True) -> LogState:
        """Return the present head and schemas of the log.

        Args:
            is_fresh: Whether the result must be current. If false, the call sends one request
                fewer.

        Raises:
            LogNotFoundError: The log was deleted.
            MetadataFormatError: The log was written by a later release of ledgerlog.
        """
        return await self.host.run(StateMachine(self.name, is_fresh=is_fresh))

    async def history(self) -> tuple[VersionInterval, ...]:
        """Return every retained version of the log, oldest first.

        Raises the errors of `state`.
        """
        return await self.host.run(HistoryMachine(self.name))

    def watch_end(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` whenever the log may have more rows or other rows.

        `on_change` is called on the event loop and must not block. It is also called after a lost
        session, because the watch may have missed changes.

        Return a function that ends the watch. The watch also ends when the client is closed. The
        log's head is watched. In a leader log, the metadata of each open ledger and one bookie of
        each open ledger are also watched. Exceptions of `on_change` are reported to the event
        loop's exception handler.

        Raises:
            LocalProtocolError: The client is closed.
        """
        return EndWatch(self.host, on_change).cancel

    async def floor(self, ledger_id: int) -> int:
        """Return the last listed entry of a ledger.

        The result is NO_ENTRY if no retained version lists the ledger. The call reads the commits
        since the creation of the ledger, a few pages at a time.

        Raises:
            LogNotFoundError: The log was deleted.
        """
        since = 0  # if the ledger has no metadata, any part of the list may contain it
        with contextlib.suppress(LedgerNotFoundError):
            since = since_offset((await self.host.ledgers.ledger_metadata(ledger_id)).custom)
        machine = FloorMachine(self.name, {ledger_id: since})
        return (await self.host.run(machine))[ledger_id]

    async def seal(self, ledger_id: int, *, password: bytes = b"") -> LedgerMetadata:
        """Fence, recover and close a ledger of this log. All entries that the log lists stay.

        Args:
            ledger_id: Id of the ledger.
            password: The ledger's password.

        Raises:
            NeedsOperatorError: Not all listed entries were found. The ledger was not closed.
            LedgerRecoveryError: Too few bookies answered. The ledger was not closed.
        """
        if (await self.host.ledgers.ledger_metadata(ledger_id)).is_closed:
            return await self.host.ledgers.seal(ledger_id, password=password)
        floor = await self.floor(ledger_id)
        return await self.host.ledgers.seal(ledger_id, password=password, floor_entry_id=floor)

    async def lead(
        self,
        settings: ClientSettings,
        *,
        schema: bytes | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Leader:
        """Become the leader of this log. An earlier leader then can no longer append.

        Args:
            settings: Settings with the linger and the backlog of appends.
            schema: Encoded schema of the rows to append, which is compared with the log's schema.
                It is None if records are appended, or rows of the log's own schema.
            properties: Properties by option name that the log must have. If this is None, the log
                may have any properties.

        Raises:
            LogKindError: The log is transactional, or `schema` is given for a log of records.
            ConfigurationError: The log has other properties; nothing was changed.
            SchemaMismatchError: Rows of `schema` do not fit the log; nothing was changed.
            LedgerLogError: The errors of `Leader.open`.
        """
        check_type("settings", settings, ClientSettings)
        check_optional("schema", schema, bytes)
        check_optional("properties", properties, Mapping)
        state = await self.state()
        # Imported here because many programs have no leader.
        from ledgerlog_spark.log.leader.content import content_of
        from ledgerlog_spark.log.leader.leader import Leader

        check_leader_log(self.name, state.head.kind)
        check_has_properties(self.name, state.head.properties, properties or {})
        leader = Leader(self.host, settings, content_of(self.name, state, schema), self.truncate)
        await leader.open()
        return leader
