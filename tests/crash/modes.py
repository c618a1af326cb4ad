"""The write modes. A random run chooses a mode at each start."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.settings import ModeSettings


@dataclass(frozen=True, slots=True)
class Mode:
    """The write mode of a start."""

    write_mode: BookieWriteMode
    sync_data: bool = True

    def settings(
        self, random: Random, intervals_ms: tuple[int, ...] = (1, 100, 10_000)
    ) -> ModeSettings:
        """Return settings with this mode and small sizes."""
        is_journal = self.write_mode is BookieWriteMode.JOURNAL
        return ModeSettings(
            write_mode=self.write_mode,
            journal_directory="/journal" if is_journal else "",
            journal_sync_data=self.sync_data,
            journal_files=random.choice((2, 3)),
            checkpoint_bytes=random.choice((1, 1 << 12, 1 << 16)),
            checkpoint_interval_ms=random.choice(intervals_ms),
        )


DIRECT = (Mode(BookieWriteMode.DIRECT),)
JOURNAL = (Mode(BookieWriteMode.JOURNAL),)
SYNCED = (*DIRECT, *JOURNAL)
WEAK = (Mode(BookieWriteMode.UNJOURNALED), Mode(BookieWriteMode.JOURNAL, sync_data=False))
ALL_MODES = (*SYNCED, *WEAK)
