"""The interface between compaction and the keeper of the files.

Compaction owns the files that it copies, its draft (the file that it writes), and the slot of the
draft. The keeper does not change these files. When the copies are durable, compaction requests a
`Switch`: one MANIFEST lists the copies, and no longer lists the files that were copied.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from bookie_server.storage.files.entry_log_file import FinishedFile, OpenFile


@dataclass(slots=True, eq=False)
class Switch:
    """The exchange of files by one MANIFEST."""

    copies: FinishedFile | None  # None if no entry of the sources was live
    sources: tuple[FinishedFile, ...]  # files from which all needed entries are copied
    is_due: bool = False  # whether the next MANIFEST makes the switch
    is_done: bool = False  # whether the durable MANIFEST has made the switch


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Room on the device that a file of copies takes until the next switch.

    The switch frees files of at least this size, so the room counts as free.
    """

    slot: str
    size_bytes: int


@dataclass(slots=True)
class Handover:
    """The files that compaction owns. Until a switch is durable, reads still use its sources."""

    owned: set[int] = field(default_factory=set)  # ids of files that must not be freed
    taken: set[str] = field(default_factory=set)  # slots in which a file is being prepared
    draft: OpenFile | None = None  # the file that compaction writes; no MANIFEST lists it
    switch: Switch | None = None
    borrowed: Borrowed | None = None  # None if no room of the copies counts as free

    @property
    def borrowed_bytes(self) -> int:
        """Bytes of the room for compaction that are in use now."""
        return 0 if self.borrowed is None else self.borrowed.size_bytes

    def names(self, ledger_id: int) -> bool:
        """Return whether the draft has records of a ledger, live or dropped."""
        return self.draft is not None and ledger_id in self.draft.index

    @property
    def due(self) -> Switch | None:
        """The switch that the next MANIFEST makes."""
        return self.switch if self.switch is not None and self.switch.is_due else None

    @property
    def unlisted(self) -> Collection[FinishedFile]:
        """The finished files that the next MANIFEST must not list."""
        if self.switch is None:
            return ()
        if self.switch.is_due:
            return self.switch.sources
        return () if self.switch.copies is None else (self.switch.copies,)
