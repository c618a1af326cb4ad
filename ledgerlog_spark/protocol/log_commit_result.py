"""How a commit ended: the value that jobs, streams and commands are given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log_messages import WriteHead


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


def result_of(write: WriteHead) -> CommitResult:
    """The result when that transaction got through."""
    return CommitResult(CommitStatus.COMMITTED, write.head.version, write.head.end_offset)
