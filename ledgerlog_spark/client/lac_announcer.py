"""Tells bookies how far an idle writer's ledger is confirmed (DESIGN 2, 6.3).

An entry's header carries the last add confirmed of the moment when it was sent, so bookies learn
of a ledger's newest entry with the next one. When there is no next one, the writer says so itself:
to the ledger's *herald* at once, which is the bookie that readers watch first, and to the rest of
the ensemble a little later. A LAC is confirmed whoever repeats it, so this never needs a quorum,
and a deposed writer that still announces does no harm.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from ledgerlog_spark.model import NO_ENTRY, Code
from ledgerlog_spark.transport.port import WriteLac

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.client.ledger_bytes import LedgerBytes
    from ledgerlog_spark.client.services import Services
    from ledgerlog_spark.model import LedgerMetadata
    from ledgerlog_spark.protocol.writer import LedgerWriter

EXPLICIT_LAC_KEY = "ledgerlog.lac"
EXPLICIT_LAC = b"explicit"
"""Custom metadata of a ledger whose writer announces: readers ask for what it announced."""

QUICK_SECONDS = 0.002
"""A writer whose last pause was shorter is about to append again, which announces as well."""

ATTEMPTS_MAX = 8
"""Of telling one bookie one LAC, with a pause in between; a bookie may have no control service."""


def announces(metadata: LedgerMetadata) -> bool:
    """Whether the writer of the ledger announces."""
    return metadata.custom.get(EXPLICIT_LAC_KEY) == EXPLICIT_LAC


def herald_index(ledger_id: int, ensemble_size: int) -> int:
    """The index of the bookie that hears first of a LAC, so that watching it is fastest."""
    return ledger_id % ensemble_size


class LacAnnouncer:
    """Announces for one write handle. All methods on the event loop's thread."""

    def __init__(self, writer: LedgerWriter, services: Services, ledger: LedgerBytes) -> None:
        self._writer = writer
        self._services = services
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._told: dict[str, int] = {}
        self._asked: set[str] = set()
        self._attempts = 0
        self._is_idle = False
        self._was_quick = False
        self._idle_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def on_sent(self) -> None:
        """A run was sent, and with it the LAC before it."""
        if self._is_idle:
            self._is_idle = False
            self._was_quick = self._loop.time() - self._idle_since < QUICK_SECONDS

    def on_idle(self) -> None:
        """All that was sent is confirmed."""
        self._is_idle = True
        self._attempts = 0
        self._idle_since = self._loop.time()
        if not self._was_quick:
            ensemble = self._ensemble()
            self._tell(ensemble[herald_index(self._ledger.ledger_id, len(ensemble))])
        self._start_timer()

    def on_ensemble_changed(self) -> None:
        """Bookies came that know nothing, and readers are about to watch one of them."""
        if self._is_idle:
            self.on_idle()

    def stop(self) -> None:
        """Announce nothing more."""
        self._is_stopped = True
        self._is_idle = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        if self._timer is None:
            seconds = self._services.settings.explicit_lac_ms / 1e3
            self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._is_idle:
            return  # the next pause starts it again
        self._attempts += 1
        untold = [bookie_id for bookie_id in self._ensemble() if self._is_untold(bookie_id)]
        for bookie_id in untold:
            self._tell(bookie_id)
        if untold and self._attempts < ATTEMPTS_MAX:
            self._start_timer()

    def _is_untold(self, bookie_id: str) -> bool:
        return self._told.get(bookie_id, NO_ENTRY) < self._writer.last_add_confirmed

    def _tell(self, bookie_id: str) -> None:
        """Tell one bookie, unless it has not answered the last time yet: then after that."""
        if bookie_id in self._asked or not self._is_untold(bookie_id):
            return
        lac = self._writer.last_add_confirmed
        self._asked.add(bookie_id)
        self._services.transport.write_lac(
            bookie_id,
            WriteLac(self._ledger.ledger_id, lac, self._ledger.master_key),
            self._services.settings.add_timeout_ms,
            partial(self._on_told, bookie_id, lac),
        )

    def _on_told(self, bookie_id: str, lac: int, code: Code) -> None:
        self._asked.discard(bookie_id)
        if code is Code.OK:
            self._told[bookie_id] = max(lac, self._told.get(bookie_id, NO_ENTRY))
            if self._is_idle:
                self._tell(bookie_id)

    def _ensemble(self) -> Sequence[str]:
        return self._writer.metadata.value.last_fragment.ensemble
