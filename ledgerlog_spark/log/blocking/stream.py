"""The blocking calls for a stream's tasks and its commit. Spark's Python processes use them."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.log.blocking.logs import BlockingRangeWriter
from ledgerlog_spark.log.committing.commits import KnownLogs
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.log.committing.range_writer import RangeWriter
from ledgerlog_spark.log.committing.stream_ledgers import StreamLedgers
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.protocol.log.commit.epoch import Joined
from ledgerlog_spark.protocol.log.commit.result import CommitResult
from ledgerlog_spark.protocol.log.state.records import StagedRange

_ledgers: WeakKeyDictionary[LedgerClient, StreamLedgers] = WeakKeyDictionary()
_known: WeakKeyDictionary[LedgerClient, KnownLogs] = WeakKeyDictionary()


class BlockingStream:
    """One batch of a stream, in a process that runs a task of the batch or commits the batch.

    Joined runs and open ledgers are stored with the client for later batches, until the client is
    closed. A forked child does not have the state of its parent.
    """

    def __init__(self, client: BlockingClient, job: Job) -> None:
        """Create the object for one batch. `job` contains the id of the query run."""
        self._client = client
        self._job = job

    def join(self) -> Joined:
        """Join the query run. Only the first call for a run in a process sends requests."""

        async def joined(client: LedgerClient) -> Joined:
            return await ledgers_of(client).join(self._log(client).commits, self._job)

        return self._client.run(joined)

    def open_range(self) -> BlockingRangeWriter:
        """Return a writer for the next range, in an open ledger or in a new ledger."""

        async def opened(client: LedgerClient) -> RangeWriter:
            return await ledgers_of(client).open_range(self._log(client).commits, self._job)

        return BlockingRangeWriter(self._client, self._client.run(opened))

    def commit(self, ranges: Sequence[StagedRange]) -> CommitResult:
        """Commit the batch atomically, so that it is visible and durable.

        A batch is committed only once.
        """

        async def committed(client: LedgerClient) -> CommitResult:
            known = _known.setdefault(client, KnownLogs())
            return await self._log(client).commit(self._job, ranges, known=known)

        return self._client.run(committed)

    def _log(self, client: LedgerClient) -> Log:
        return logs_of(client).open_by_id(self._job.log, self._job.log_id)


def ledgers_of(client: LedgerClient) -> StreamLedgers:
    """Return the joined runs and open ledgers that `client` has for tasks of streams."""
    return _ledgers.setdefault(client, StreamLedgers())
