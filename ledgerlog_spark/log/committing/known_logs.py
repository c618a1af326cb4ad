"""State of this process's commits, for later ones of the same producers (LOGS.md#K11)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log.commit.result import KnownLog

PRODUCERS_MAX = 64


class KnownLogs:
    """By log id and app; the producers that committed longest ago are forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], KnownLog] = OrderedDict()

    def take(self, log_id: str, app: str) -> KnownLog | None:
        """Remove and return the state: a commit that fails leaves nothing."""
        return self._known.pop((log_id, app), None)

    def put(self, log_id: str, app: str, known: KnownLog | None) -> None:
        """Keep the state after a commit; None for nothing."""
        if known is not None:
            self._known[log_id, app] = known
        while len(self._known) > PRODUCERS_MAX:
            self._known.popitem(last=False)
