"""Limits the number of log lines if many ledgers have the same problem."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass

INTERVAL_SECONDS = 60.0
KEYS_MAX = 100


@dataclass(slots=True)
class _Written:
    at: float
    left_out: int = 0


class Seldom:
    """Decides which log lines are written: at most one a minute for each key.

    Call its methods in an event loop.
    """

    def __init__(self) -> None:
        self._written: dict[Hashable, _Written] = {}  # the oldest line first

    def suffix(self, key: Hashable) -> str | None:
        """Return the end of a log line. It states how many lines of this key were omitted before.

        Args:
            key: The situation that the line describes. At most `KEYS_MAX` keys are stored.

        Returns:
            None if this line must be omitted too; "" if no line was omitted before.
        """
        now = asyncio.get_running_loop().time()
        last = self._written.get(key)
        if last is not None and now - last.at < INTERVAL_SECONDS:
            last.left_out += 1
            return None
        self._written.pop(key, None)
        self._written[key] = _Written(now)
        if len(self._written) > KEYS_MAX:
            del self._written[next(iter(self._written))]
        if last is None or not last.left_out:
            return ""
        return f" (so do {last.left_out} other ledgers since the last such line)"
