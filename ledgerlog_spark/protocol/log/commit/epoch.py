"""Determines which query run may write for a producer (LOGS.md#P1-P5).

If a run is not in the producer record, and its batch is not older than the last committed batch,
the run takes over by compare-and-swap. If the record lists a later run, the earlier run is a zombie
and may not write any more. Run ids are unique, so after an unknown outcome the record shows whether
the run took over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ledgerlog_spark.errors import (
    LedgerLogError,
    MetadataUnknownError,
    MetadataVersionError,
    ProducerFencedError,
    StaleCheckpointError,
)
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.commit.result import forgotten
from ledgerlog_spark.protocol.log.machine import LogMachine, Steps
from ledgerlog_spark.protocol.log.messages import ReadProducer, Sync, TimeNeeded, WriteProducer
from ledgerlog_spark.protocol.log.state.records import RUNS_REMEMBERED_MAX, ProducerRecord

ATTEMPTS_MAX = 100
UNKNOWN_MAX = 10


class JobKind(Enum):
    """The kind of a job. The kind determines the effect of a batch id that was committed before.

    If a batch job is run again, its batch is already committed, so it writes nothing. After a
    restart, a stream commits its last batch again, which has no effect. If a stream begins with an
    older batch, its checkpoint is too old.
    """

    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Joined:
    """State of a run in its producer record."""

    epoch: int
    version: Version  # version of the producer record, under which registrations are created
    is_replay: bool  # a batch job must write nothing, because its batch is committed
    last_batch_id: int
    # Whether this machine made the run the current run. If so, the ledgers of older epochs must be
    # sealed.
    took_over: bool = False


def query_of(run: str) -> str:
    """Return the query in the name of a run, `query/run`.

    The result is empty if the name contains no query.
    """
    return run.rpartition("/")[0]


class EpochMachine(LogMachine[Joined]):
    """Makes a query run the current run of its producer, or fails if this is not allowed.

    Ends with `Finished(Joined)`, or with `Failed` and `ProducerFencedError` (a later run took
    over), `StaleCheckpointError` (the batch id is below the last committed batch id, or belongs to
    another query), `MetadataVersionError` (too many conflicts) or the store's errors. A take-over
    is idempotent, so the machine can repeat it after an unknown outcome.
    """

    def __init__(
        self,
        log: str,
        *,
        app: str,
        run: str,
        batch_id: int,
        kind: JobKind,
        may_create: bool = True,
        syncs_first: bool = True,
    ) -> None:
        """If a query writes under the name of another app, `run` has the form `query/run`.

        If `may_create` is False, the machine does not create the record of an unknown producer. The
        tasks of a batch job pass False, because the job has created the record before. So if the
        record is missing, it was deleted, and must not be created again.

        If `syncs_first` is False, the record is first read without a `Sync`. If the record is
        missing or names another current run, the machine sends a `Sync` and reads the record again.
        Otherwise the machine ends, and the caller checks the returned version, because the record
        may be old.
        """
        super().__init__(log)
        self._may_create = may_create
        self._syncs_first = syncs_first
        self._app = app
        self._run_id = run
        self._batch_id = batch_id
        self._kind = kind
        self._attempts = 0
        self._unknowns = 0

    def _run(self) -> Steps[Joined]:
        is_fresh = self._syncs_first
        while True:
            if is_fresh:
                yield from self._read(Sync())
            reply = yield from self._read(ReadProducer(self._app, TimeNeeded.RECENT))
            found = reply.producer
            in_place = found is not None and found.value.current_run == self._run_id
            if not in_place and not is_fresh:
                is_fresh = True
                continue
            if found is not None and self._is_joined(found.value):
                return self._joined(found)
            yield from self._take_over(found, reply.now_ms)

    def _is_joined(self, record: ProducerRecord) -> bool:
        """Return whether the run need not take over. Raise an error if it must not take over."""
        if record.current_run == self._run_id:
            return True
        if self._is_zombie(record):
            raise ProducerFencedError(
                f"run {self._run_id!r} of producer {self._app!r} was replaced by "
                f"{record.current_run!r}; it can commit nothing more to log {self.log!r}",
                log=self.log,
                app=self._app,
                run=self._run_id,
                current_run=record.current_run,
            )
        if self._kind is JobKind.BATCH:
            is_replay = record.last_batch_id >= self._batch_id
            if is_replay and self._is_other_query(record):
                raise self._of_a_stream(record)
            return is_replay
        if record.last_batch_id > self._batch_id:
            raise StaleCheckpointError(
                f"log {self.log!r} holds batches of {self._app!r} up to {record.last_batch_id}, "
                f"but the query begins with {self._batch_id}: the query's checkpoint is older than "
                "the log. Restore the newer checkpoint, or start a query with a new checkpoint",
                **self._batches_of(record),
            )
        if record.last_batch_id >= 0 and self._is_other_query(record):
            whose = "belongs to another query" if record.runs else "may belong to another query"
            raise StaleCheckpointError(
                f"batch {record.last_batch_id} of {self._app!r} in log {self.log!r} {whose}, and "
                f"this query begins with {self._batch_id}: set a different txnAppId for each query",
                **self._batches_of(record),
            )
        return False

    def _is_zombie(self, record: ProducerRecord) -> bool:
        """Whether this run was the current run before another run took over (LOGS.md#P2)."""
        return self._run_id in record.runs[:-1]

    def _is_other_query(self, record: ProducerRecord) -> bool:
        """Whether the last run may belong to another query (LOGS.md#P4).

        Batch ids of different queries cannot be compared. Older releases removed even the last run
        from a record after `txnRetentionMs`. Such a record does not name the query.
        """
        current = record.current_run
        return query_of(self._run_id) != ("" if current is None else query_of(current))

    def _of_a_stream(self, record: ProducerRecord) -> StaleCheckpointError:
        """Return the error for a batch job that uses the name of a stream (LOGS.md#P4)."""
        return StaleCheckpointError(
            f"a streaming query writes to log {self.log!r} as {self._app!r}, so this job cannot "
            f"write its batch {self._batch_id} as {self._app!r}: set a different txnAppId for the "
            "job",
            **self._batches_of(record),
        )

    def _batches_of(self, record: ProducerRecord) -> dict[str, Any]:
        """Return the fields of an error that name the log's last batch and this run's batch."""
        return {
            "log": self.log,
            "app": self._app,
            "batch_id": self._batch_id,
            "last_batch_id": record.last_batch_id,
        }

    def _take_over(self, found: Versioned[ProducerRecord] | None, now_ms: int) -> Steps[None]:
        """Request the next epoch. Whatever the outcome, the caller reads the record again."""
        if found is None and not self._may_create:
            raise forgotten(self.log, self._app)
        record = found.value if found is not None else ProducerRecord()
        taken = replace(
            record,
            epoch=record.epoch + 1,
            runs=(*record.runs, self._run_id)[-RUNS_REMEMBERED_MAX:],
            time_ms=now_ms,
        )
        version = found.version if found is not None else None
        reply = yield from self._reply_to(WriteProducer(self._app, taken, version))
        if reply.outcome is MetadataOutcome.UNAVAILABLE:
            raise self._read_error(reply.outcome)
        if reply.outcome is MetadataOutcome.UNKNOWN:
            self._unknowns += 1
            if self._unknowns > UNKNOWN_MAX:
                raise self._read_error(reply.outcome)
        self._attempts += 1
        if self._attempts > ATTEMPTS_MAX:
            raise MetadataVersionError(
                f"producer {self._app!r} of log {self.log!r} was changed by other processes "
                "at every attempt",
                app=self._app,
            )

    def _read_error(self, outcome: MetadataOutcome) -> LedgerLogError:
        """Return the store's error, or `MetadataUnknownError` if an attempt got no answer."""
        if self._unknowns == 0:
            return super()._read_error(outcome)
        return MetadataUnknownError(
            f"it is unknown whether run {self._run_id!r} took over producer {self._app!r}: try "
            "again",
            app=self._app,
            run=self._run_id,
        )

    def _failed(self, error: LedgerLogError) -> LedgerLogError:
        error.definite = error.definite and self._unknowns == 0
        return error

    def _joined(self, found: Versioned[ProducerRecord]) -> Joined:
        record = found.value
        return Joined(
            epoch=record.epoch,
            version=found.version,
            is_replay=self._kind is JobKind.BATCH and record.last_batch_id >= self._batch_id,
            last_batch_id=record.last_batch_id,
            took_over=self._has_written,
        )
