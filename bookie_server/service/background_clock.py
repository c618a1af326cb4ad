"""Starts the compactions and the scrubs at their intervals, and logs their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from bookie_server.ports import Tasks
from bookie_server.service.logging import get_logger
from bookie_server.storage.compaction.compactor import Compactor
from bookie_server.storage.compaction.cycle import Compacted
from bookie_server.storage.scrub.scrubber import Scrubbed, Scrubber

CHECK_INTERVAL_MS = 60_000

_logger = get_logger("background_clock")


class BackgroundClock:
    """Checks each minute whether a compaction or a scrub is due, without the metadata store."""

    def __init__(self, compactor: Compactor, scrubber: Scrubber, tasks: Tasks) -> None:
        self._compactor = compactor
        self._scrubber = scrubber
        self._tasks = tasks
        self._is_stopped = False

    def start(self) -> None:
        """Start the clock."""
        self._tasks.spawn("clock of background work", self._tick())

    def stop(self) -> None:
        """Start no further compaction and no further scrub."""
        self._is_stopped = True

    async def _tick(self) -> None:
        await self._scrubber.load()
        while not self._is_stopped:
            await self._tasks.sleep(CHECK_INTERVAL_MS)
            if not self._is_stopped:
                self._compactor.compact_when_due()
                self._scrubber.scrub_when_due()


def log_compactions(
    compactor: Compactor, directory: str, on_compacted: Callable[[Compacted], None]
) -> None:
    """Write a log line for each compaction that changed a file, and call `on_compacted` for each.

    If compactions are refused one after the other, only the first one of them writes a line.
    """
    was_refused = False

    def log(compacted: Compacted) -> None:
        nonlocal was_refused
        on_compacted(compacted)
        fields = asdict(compacted)
        refusal = fields.pop("refusal")
        if compacted.files_freed or compacted.files_withdrawn:
            _logger.info("compacted", **fields)
        if refusal and not was_refused:
            _logger.warning("compaction_refused", directory=directory, reason=refusal)
        was_refused = bool(refusal)

    compactor.on_compacted = log


def log_scrubs(scrubber: Scrubber) -> None:
    """Write a log line for each scrub, and for each record with damaged entries."""

    def on_scrubbed(scrubbed: Scrubbed) -> None:
        is_damaged = scrubbed.damaged_records or scrubbed.files_skipped
        (_logger.warning if is_damaged else _logger.info)("scrubbed", **asdict(scrubbed))

    def on_damaged(path: str, ledger_id: int, entry_ids: Sequence[int]) -> None:
        _logger.warning(
            "damaged_entries",
            path=path,
            ledger_id=ledger_id,
            first_entry_id=entry_ids[0],
            last_entry_id=entry_ids[-1],
            damaged_entries=len(entry_ids),
        )

    scrubber.on_scrubbed, scrubber.on_damaged = on_scrubbed, on_damaged
