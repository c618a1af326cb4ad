"""The ledgers with damaged entries, which the scrub reported, and when each is repaired."""

from __future__ import annotations

from collections.abc import Iterable

LEDGERS_MAX = 1_000
TRIES_MAX = 8
RETRY_PAUSE_MS = 60_000


class DamagedLedgers:
    """Ledgers whose damaged entries must be fetched from other bookies.

    If a repair is not complete, it is tried again after a pause, which doubles each time. After
    `TRIES_MAX` attempts, the next scrub must report the entries again.
    """

    def __init__(self) -> None:
        self._due: dict[int, tuple[int, int]] = {}  # time and number of the next attempt

    @property
    def has_room(self) -> bool:
        """Whether the scrub may report more ledgers. It reports at most as many at a time."""
        return len(self._due) < LEDGERS_MAX

    def add(self, ledger_ids: Iterable[int], now_ms: int) -> None:
        """Repair ledgers as soon as possible."""
        self._due.update(dict.fromkeys(ledger_ids, (now_ms, 1)))

    def due(self, now_ms: int) -> list[int]:
        """Return the ledgers that must be repaired now."""
        return [ledger_id for ledger_id, (due_ms, _) in self._due.items() if due_ms <= now_ms]

    def note(self, ledger_id: int, now_ms: int, *, is_over: bool) -> None:
        """Note the end of a repair. Unless it is over, it is tried again."""
        _, tries = self._due.pop(ledger_id)
        if not is_over and tries < TRIES_MAX:
            pause_ms = RETRY_PAUSE_MS << (tries - 1)
            self._due[ledger_id] = (now_ms + pause_ms, tries + 1)
