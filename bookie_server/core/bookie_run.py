"""The write mode of a bookie, and the fields of the MANIFEST about the current run.

A *run* begins before a bookie answers its first request, and ends with a clean stop. After a run
without a clean stop, the next start reads in the MANIFEST where that run stored acknowledged
records.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class BookieWriteMode(Enum):
    """Where a record must be before its add is acknowledged."""

    DIRECT = "direct"
    """The record is in an entry-log file and synced."""
    JOURNAL = "journal"
    """The record is in a journal file and synced. It is also in an entry-log file, which is synced
    later."""
    UNJOURNALED = "unjournaled"
    """The record is in an entry-log file, but not yet synced. A power loss can lose acknowledged
    entries."""


@dataclass(frozen=True, slots=True)
class BookieRun:
    """One run of a bookie.

    Attributes:
        run_id: 16 hex digits, different for each run.
        mode: The write mode of the run.
        is_synced: Whether the run acknowledged adds only after a sync of their records.
        journal: Path of the journal directory; "" if the run has no journal.
        journal_files: Number of journal files; 0 if the run has no journal.
        journal_file_bytes: Size of each journal file; 0 if the run has no journal.
    """

    run_id: str
    mode: BookieWriteMode = BookieWriteMode.DIRECT
    is_synced: bool = True
    journal: str = ""
    journal_files: int = 0
    journal_file_bytes: int = 0

    @property
    def needs_journal(self) -> bool:
        """Whether acknowledged records may be only in the journal if the run ends uncleanly."""
        return self.mode is BookieWriteMode.JOURNAL and self.is_synced

    def while_synced(self) -> BookieRun:
        """Return the run as the MANIFEST lists it while all its acknowledged records are synced.

        A run in mode `direct` is listed in the same way.
        """
        return BookieRun(self.run_id)

    def to_json(self) -> dict[str, Any]:
        """Return the fields for the MANIFEST."""
        return {**asdict(self), "mode": self.mode.value}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> BookieRun:
        """Return the run from the fields in a MANIFEST.

        Raises:
            TypeError: A field is missing or unknown.
            ValueError: The mode is unknown.
        """
        return cls(**{**fields, "mode": BookieWriteMode(fields["mode"])})


@dataclass(frozen=True, slots=True)
class RunJournal:
    """A journal directory that may have the files of a run.

    Attributes:
        run_id: The id of the run.
        path: Absolute path of the journal directory.
    """

    run_id: str
    path: str
