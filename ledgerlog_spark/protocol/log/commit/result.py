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
        status: Whether this commit changed it.
        version: Version of the batch, None if it created none or its version is unknown.
        end_offset: The offset after the batch's rows, None as above.
    """

    status: CommitStatus
    version: int | None = None
    end_offset: int | None = None


def forgotten(log: str, app: str) -> ProducerFencedError:
    """The error for a producer whose record the sweeper deleted before its job ended."""
    return ProducerFencedError(
        f"log {log!r} no longer has producer {app!r}: the job took longer than stagingTtlMs; run "
        "it again",
        log=log,
        app=app,
    )


@dataclass(frozen=True, slots=True)
class KnownLog:
    """A head and a producer record after a commit, to the knowledge of its process.

    Attributes:
        head: The log's head.
        producer: Record of the app that committed.
        registered: Ledgers that were registered under `producer` at that version.
    """

    head: Versioned[LogHead]
    producer: Versioned[ProducerRecord]
    registered: frozenset[int] = frozenset()

    def may_precede(self, request: CommitRequest) -> bool:
        """Whether a commit that starts from this state can succeed."""
        record = self.producer.value
        return record.current_run == request.run and record.last_batch_id < request.batch_id


def left_by(
    write: WriteHead, head_version: Version | None, registered: frozenset[int]
) -> KnownLog | None:
    """The stored state after `write`, if no other write followed, which is not certain.

    A conditional write increments a record's version number. None when `write` was no commit of a
    producer.
    """
    if head_version is None or write.producer is None or write.producer_version is None:
        return None
    before = write.producer_version
    after = replace(before, number=before.number + 1)
    return KnownLog(
        Versioned(write.head, head_version), Versioned(write.producer, after), registered
    )
