"""What a commit leaves behind, for the producer's next one (LOGS.md#K11)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledgerlog_spark.model import Versioned

if TYPE_CHECKING:
    from ledgerlog_spark.model import Version
    from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
    from ledgerlog_spark.protocol.log.messages import WriteHead
    from ledgerlog_spark.protocol.log.state.records import LogHead, ProducerRecord


@dataclass(frozen=True, slots=True)
class KnownLog:
    """A head and a producer record as a commit left them, as far as its process knows.

    Attributes:
        head: Of the log.
        producer: Of the app that committed.
        registered: Ledgers that were registered under `producer` at that version.
    """

    head: Versioned[LogHead]
    producer: Versioned[ProducerRecord]
    registered: frozenset[int] = frozenset()

    def may_precede(self, request: CommitRequest) -> bool:
        """Whether a commit that starts from here can pass; else it would only be refused."""
        record = self.producer.value
        return record.current_run == request.run and record.last_batch_id < request.batch_id


def left_by(
    write: WriteHead, head_version: Version | None, registered: frozenset[int]
) -> KnownLog | None:
    """What the store holds after `write`, if nobody came in between: a guess, never more.

    A conditional write raises a record's version number by one. None when `write` was no commit of
    a producer.
    """
    if head_version is None or write.producer is None or write.producer_version is None:
        return None
    before = write.producer_version
    after = replace(before, number=before.number + 1)
    return KnownLog(
        Versioned(write.head, head_version), Versioned(write.producer, after), registered
    )
