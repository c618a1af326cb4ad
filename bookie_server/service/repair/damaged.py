"""The ledgers with damaged entries, which the scrub or a read reported, and their repairs."""

from __future__ import annotations

from collections.abc import Iterable

LEDGERS_MAX = 1_000
TRIES_MAX = 8
RETRY_PAUSE_MS = 60_000


class DamagedLedgers:
    """Ledgers whose damaged entries must be fetched from other bookies.

    If a repair is not complete, it is tried again after a pause, which doubles each time. After
    `TRIES_MAX` attempts, the next scrub or read must report the entries again. Reads may report a
    ledger often. So the next repair of a ledger does not begin before `RETRY_PAUSE_MS` have passed
    since the end of its last repair.
    """

    def __init__(self) -> None:
        self._due: dict[int, tuple[int, int]] = {}  # per ledger, time and number of next attempt
        self._ended: dict[int, int] = {}  # per ledger, time of the end of the last repair

    @property
    def has_room(self) -> bool:
        """Whether more ledgers may be reported."""
        return len(self._due) < LEDGERS_MAX

    def add(self, ledger_ids: Iterable[int], now_ms: int) -> None:
        """Repair ledgers as soon as possible. A ledger that waits for a retry continues to wait."""
        for ledger_id in ledger_ids:
            ended_ms = self._ended.get(ledger_id)
            due_ms = now_ms if ended_ms is None else max(now_ms, ended_ms + RETRY_PAUSE_MS)
            self._due.setdefault(ledger_id, (due_ms, 1))

    def due(self, now_ms: int) -> list[int]:
        """Return the ledgers that must be repaired now."""
        return [ledger_id for ledger_id, (due_ms, _) in self._due.items() if due_ms <= now_ms]

    def note(self, ledger_id: int, now_ms: int, *, is_over: bool) -> None:
        """Record the end of a repair attempt. If the repair is not complete, it is tried again."""
        _, tries = self._due.pop(ledger_id)
        if not is_over and tries < TRIES_MAX:
            pause_ms = RETRY_PAUSE_MS << (tries - 1)
            self._due[ledger_id] = (now_ms + pause_ms, tries + 1)
            return
        self._ended.pop(ledger_id, None)
        self._ended[ledger_id] = now_ms
        if len(self._ended) > LEDGERS_MAX:
            del self._ended[next(iter(self._ended))]
