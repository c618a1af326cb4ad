"""How a commit ended: the value that jobs, streams and commands are given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import CommitUnknownError

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log.messages import WriteHead


class CommitStatus(Enum):
    """How a commit ended well."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    NOTHING_TO_COMMIT = "nothing to commit"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What the log is like after the commit.

    Attributes:
        status: Whether this commit changed it.
        version: That the batch made, None when it made none or that is no longer known.
        end_offset: Behind the batch's rows, None as above.
    """

    status: CommitStatus
    version: int | None = None
    end_offset: int | None = None


def unknown(
    log: str, app: str, batch_id: int, token: str, timeout_ms: int | None = None
) -> CommitUnknownError:
    """The error of a commit whose transaction was sent and may have got through.

    Args:
        log: Name.
        app: The producer.
        batch_id: Of the batch.
        token: Of the transaction.
        timeout_ms: What the commit had, when that is why it ended.
    """
    late: dict[str, Any] = {} if timeout_ms is None else {"timeout_ms": timeout_ms}
    return CommitUnknownError(
        f"batch {batch_id} of producer {app!r} may or may not be in log {log!r}: commit it again "
        "under the same numbers",
        log=log,
        app=app,
        batch_id=batch_id,
        token=token,
        **late,
    )


def result_of(write: WriteHead) -> CommitResult:
    """The result when that transaction got through."""
    return CommitResult(CommitStatus.COMMITTED, write.head.version, write.head.end_offset)
