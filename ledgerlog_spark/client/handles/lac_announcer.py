"""Sends the last add confirmed (LAC) of an idle writer's ledger to bookies (LOGS.md#H3).

The header of an entry contains the LAC at the time when the entry was sent. Without this module,
bookies would therefore learn that the newest entry is confirmed only from the next entry. The
writer immediately sends each LAC to the ledger's *herald*, the bookie that readers watch first.
Because a bookie may forget such a notification, a writer that stays idle also writes the LAC to all
bookies of the ensemble, a little later. A confirmed entry stays confirmed. Therefore a LAC needs no
quorum, and a replaced writer that still announces LACs does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from ledgerlog_spark.client.handles.ledger_bytes import LedgerBytes
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata
from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter
from ledgerlog_spark.transport.port import WriteLac

EXPLICIT_LAC_KEY = "ledgerlog.lac"
EXPLICIT_LAC = b"explicit"
"""Value of `EXPLICIT_LAC_KEY` in the custom metadata of a ledger whose writer announces LACs.

Readers of such a ledger request the announced LAC.
"""

QUICK_SECONDS = 0.002
"""Idle time in seconds below which the writer probably appends again soon.

The next entry then contains the LAC, so the writer does not write the LAC to a herald that does not
support notifications."""

ATTEMPTS_MAX = 8
"""Maximum number of attempts to write a LAC to bookies.

The number is limited because a bookie without a control service never accepts a LAC.
"""

TIMER_SLACK_MS = 1.0
"""Milliseconds before the end of `explicit_lac_ms` at which the writer already counts as idle.

Another timer for the remaining time would cost more."""


def announces(metadata: LedgerMetadata) -> bool:
    """Whether the writer of the ledger announces LACs."""
    return metadata.custom.get(EXPLICIT_LAC_KEY) == EXPLICIT_LAC


def announced(custom: Mapping[str, bytes] | None, *, explicit_lac: bool) -> Mapping[str, bytes]:
    """Return the custom metadata of a new ledger. It states whether the writer announces LACs."""
    return {**(custom or {}), **({EXPLICIT_LAC_KEY: EXPLICIT_LAC} if explicit_lac else {})}


def herald_index(ledger_id: int, ensemble_size: int) -> int:
    """Return the index of the herald: the bookie that gets a LAC first and is watched first."""
    return ledger_id % ensemble_size


class LacAnnouncer:
    """Announces LACs for one write handle. All methods must run on the event loop's thread."""

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
        """Record that a run of entries was sent. The headers of these entries contain the LAC."""
        if self._is_idle:
            self._is_idle = False
            self._was_quick = self._loop.time() - self._idle_since < QUICK_SECONDS

    def on_confirmed(self, *, is_idle: bool) -> None:
        """Announce an increased last add confirmed.

        `is_idle` states whether all sent runs are confirmed.
        """
        if self._is_stopped:
            return
        lac = self._writer.last_add_confirmed
        is_announced = lac == self._announced_lac
        if not is_announced and (is_announced := self._announce(lac)):
            self._announced_lac = lac
        if is_idle:
            self._on_idle(is_announced=is_announced)

    def on_failed(self) -> None:
        """Treat the writer as idle, because it sends and confirms no entries after a failure."""
        if not self._is_idle:
            self.on_confirmed(is_idle=True)

    def on_ensemble_changed(self) -> None:
        """Announce the LAC again, because readers may watch a new bookie of the ensemble."""
        self._announced_lac = NO_ENTRY
        ensemble = set(self._ensemble())
        self._written = {name: lac for name, lac in self._written.items() if name in ensemble}
        if self._is_idle:
            self.on_confirmed(is_idle=True)

    def stop(self) -> None:
        """Announce nothing from now on."""
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
            return  # the timer starts again when the writer becomes idle
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
        """Notify the herald. Return whether the notification was sent."""
        request = WriteLac(self._ledger.ledger_id, lac, self._ledger.master_key)
        return self._services.transport.announce_lac(self._herald(), request)

    def _write(self, bookie_id: str) -> None:
        """Write the LAC to one bookie, unless the bookie has it or an earlier write is pending."""
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
