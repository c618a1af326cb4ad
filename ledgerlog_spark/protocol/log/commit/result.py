"""Results of commits, for jobs, streams and commands, and for the producer's next commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from ledgerlog_spark.errors import ProducerFencedError
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.protocol.log.state.records import LogHead, ProducerRecord


class CommitStatus(Enum):
    """How a commit ended successfully."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    NOTHING_TO_COMMIT = "nothing to commit"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The state of the log after the commit.

    Attributes:
        version: The version that the commit created. After a merge, or a restore that changed
            nothing, this is the newest version. It is None after any other commit that created no
            version, or if the version is unknown.
        end_offset: The offset after the batch's rows; None if `version` is None.
    """

    status: CommitStatus
    version: int | None = None
    end_offset: int | None = None


def forgotten(log: str, app: str) -> ProducerFencedError:
    """Return the error for a job without a producer record.

    The record was deleted after the job's commit, or by the sweeper. If the outcome of an earlier
    commit of the job is unknown, the error does not show this outcome (LOGS.md#K7). If that commit
    succeeded, another run of the job would write the rows a second time.
    """
    return ProducerFencedError(
        f"log {log!r} no longer has producer {app!r}, and this call changed nothing: the job was "
        "committed before, or it took longer than stagingTtlMs. If an earlier commit of the job "
        "succeeded or had an unknown outcome, its rows may be in the log: look for them in "
        f"`ledgerlog logs history {log}` before you run the job again",
        log=log,
        app=app,
    )


@dataclass(frozen=True, slots=True)
class KnownLog:
    """A head and a producer record after a commit. Another process may have changed them since.

    Attributes:
        registered: The ledgers that were registered under `producer` at its version.
    """

    head: Versioned[LogHead]
    producer: Versioned[ProducerRecord]
    registered: frozenset[int] = frozenset()

    def may_precede(self, request: CommitRequest) -> bool:
        """Whether a commit that starts from this state can succeed.

        A commit with an expected version must read all records, because it may fail because of this
        version, before a transaction compares the records.
        """
        if request.expected_version is not None:
            return False
        record = self.producer.value
        return record.current_run == request.run and record.last_batch_id < request.batch_id


def left_by(
    write: WriteHead, head_version: Version | None, registered: frozenset[int]
) -> KnownLog | None:
    """Return the state that `write` stored, which is the current state until another write follows.

    A conditional write increments the version number of a record. The result is None if `write` has
    no producer, or if the version of the head is unknown.
    """
    if head_version is None or write.producer is None or write.producer_version is None:
        return None
    before = write.producer_version
    after = replace(before, number=before.number + 1)
    return KnownLog(
        Versioned(write.head, head_version), Versioned(write.producer, after), registered
    )
