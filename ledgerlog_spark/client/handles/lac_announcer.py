"""Announces to bookies how far an idle writer's ledger is confirmed (LOGS.md#H3).

An entry's header has the last add confirmed of the moment when it was sent, so bookies learn of a
ledger's newest entry with the next one. So that readers need not wait for that, the ledger's
*herald*, which is the bookie that they watch first, is notified of each entry immediately. It may
forget notifications, so a writer that stays idle writes its LAC to the whole ensemble a little
later. A LAC is confirmed whichever client repeats it, so this never needs a quorum, and a deposed
writer that still announces does no harm.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from ledgerlog_spark.model import NO_ENTRY, Code
from ledgerlog_spark.transport.port import WriteLac

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledgerlog_spark.client.handles.ledger_bytes import LedgerBytes
    from ledgerlog_spark.client.services import Services
    from ledgerlog_spark.model import LedgerMetadata
    from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter

EXPLICIT_LAC_KEY = "ledgerlog.lac"
EXPLICIT_LAC = b"explicit"
"""Custom metadata of a ledger whose writer announces: readers request the announced LAC."""

QUICK_SECONDS = 0.002
"""If the last pause was shorter, the writer probably appends soon, which also announces. It sends
nothing then to a herald that supports only writes, not notifications."""

ATTEMPTS_MAX = 8
"""Number of attempts to write a LAC to a bookie, with pauses; the bookie may have no control
service."""

TIMER_SLACK_MS = 1.0
"""An idle time that is shorter by this is long enough: another timer would cost more."""


def announces(metadata: LedgerMetadata) -> bool:
    """Whether the writer of the ledger announces."""
    return metadata.custom.get(EXPLICIT_LAC_KEY) == EXPLICIT_LAC


def announced(custom: Mapping[str, bytes] | None, *, explicit_lac: bool) -> Mapping[str, bytes]:
    """Custom metadata of a ledger, with `explicit_lac` of one whose writer announces."""
    return {**(custom or {}), **({EXPLICIT_LAC_KEY: EXPLICIT_LAC} if explicit_lac else {})}


def herald_index(ledger_id: int, ensemble_size: int) -> int:
    """The index of the bookie that gets a LAC first, so that watching it is fastest."""
    return ledger_id % ensemble_size


class LacAnnouncer:
    """Announces for one write handle. Call all methods on the event loop's thread."""

    def __init__(self, writer: LedgerWriter, services: Services, ledger: LedgerBytes) -> None:
        self._writer = writer
        self._services = services
        self._ledger = ledger
        self._idle_ms_max = services.settings.explicit_lac_ms
        self._loop = asyncio.get_running_loop()
        self._announced_lac = NO_ENTRY
        self._written: dict[str, int] = {}
        self._writing: set[str] = set()
        self._attempts = 0
        self._is_idle = False
        self._was_quick = False
        self._idle_since = 0.0
        self._timer: asyncio.Handle | None = None
        self._is_stopped = False

    def on_sent(self) -> None:
        """A run was sent, and with it the previous LAC."""
        if self._is_idle:
            self._is_idle = False
            self._was_quick = self._loop.time() - self._idle_since < QUICK_SECONDS

    def on_confirmed(self, *, is_idle: bool) -> None:
        """The last add confirmed may have risen; with `is_idle` all sent runs are confirmed."""
        if self._is_stopped:
            return
        lac = self._writer.last_add_confirmed
        is_announced = lac == self._announced_lac
        if not is_announced and (is_announced := self._announce(lac)):
            self._announced_lac = lac
        if is_idle:
            self._on_idle(is_announced=is_announced)

    def on_failed(self) -> None:
        """Nothing more is sent, and nothing more is confirmed."""
        if not self._is_idle:
            self.on_confirmed(is_idle=True)

    def on_ensemble_changed(self) -> None:
        """New bookies have no LAC, and readers are about to watch one of them."""
        self._announced_lac = NO_ENTRY
        ensemble = set(self._ensemble())
        self._written = {name: lac for name, lac in self._written.items() if name in ensemble}
        if self._is_idle:
            self.on_confirmed(is_idle=True)

    def stop(self) -> None:
        """Announce nothing more."""
        self._is_stopped = True
        self._is_idle = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_idle(self, *, is_announced: bool) -> None:
        self._is_idle = True
        self._attempts = 0
        self._idle_since = self._loop.time()
        if not is_announced and not self._was_quick:
            self._write(self._herald())
        if self._timer is None:
            self._start_timer(self._idle_ms_max)

    def _start_timer(self, delay_ms: float) -> None:
        self._timer = self._loop.call_later(delay_ms / 1e3, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._is_idle:
            return  # the next pause starts it again
        left_ms = self._idle_ms_max - (self._loop.time() - self._idle_since) * 1e3
        if left_ms > TIMER_SLACK_MS and not self._attempts:
            self._start_timer(left_ms)
            return
        self._attempts += 1
        behind = [bookie_id for bookie_id in self._ensemble() if self._is_behind(bookie_id)]
        for bookie_id in behind:
            self._write(bookie_id)
        if behind and self._attempts < ATTEMPTS_MAX:
            self._start_timer(self._idle_ms_max)

    def _is_behind(self, bookie_id: str) -> bool:
        return self._written.get(bookie_id, NO_ENTRY) < self._writer.last_add_confirmed

    def _announce(self, lac: int) -> bool:
        """Notify the herald; returns whether that was possible."""
        request = WriteLac(self._ledger.ledger_id, lac, self._ledger.master_key)
        return self._services.transport.announce_lac(self._herald(), request)

    def _write(self, bookie_id: str) -> None:
        """Write to one bookie; if its last answer is pending, write after that."""
        if bookie_id in self._writing or not self._is_behind(bookie_id):
            return
        lac = self._writer.last_add_confirmed
        self._writing.add(bookie_id)
        self._services.transport.write_lac(
            bookie_id,
            WriteLac(self._ledger.ledger_id, lac, self._ledger.master_key),
            self._services.settings.add_timeout_ms,
            partial(self._on_written, bookie_id, lac),
        )

    def _on_written(self, bookie_id: str, lac: int, code: Code) -> None:
        self._writing.discard(bookie_id)
        if code is Code.OK:
            self._written[bookie_id] = max(lac, self._written.get(bookie_id, NO_ENTRY))
            if self._is_idle:
                self._write(bookie_id)

    def _herald(self) -> str:
        ensemble = self._ensemble()
        return ensemble[herald_index(self._ledger.ledger_id, len(ensemble))]

    def _ensemble(self) -> Sequence[str]:
        return self._writer.metadata.value.last_fragment.ensemble
