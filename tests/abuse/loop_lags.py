"""The longest delays of the event loops of bookies, from their metrics."""

from __future__ import annotations

import math
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_SECONDS = 30
WALL = "ledgerlog_bookie_loop_lag"
CPU = "ledgerlog_bookie_loop_lag_cpu"
LAG_SECONDS_MAX = 0.05
"""The limit for the bookie's own work: the part of a lag in which the loop's thread computes."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The longest delay in a period of time.

    Attributes:
        wall_seconds: The delay of the loop, for any reason.
        cpu_seconds: The part of a delay in which its thread was computing.
    """

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def is_too_long(self) -> bool:
        """Whether the bookie itself blocked its event loop for longer than allowed."""
        return self.cpu_seconds > LAG_SECONDS_MAX

    def or_longer(self, other: Lag) -> Lag:
        """The longest of both times."""
        return Lag(
            max(self.wall_seconds, other.wall_seconds), max(self.cpu_seconds, other.cpu_seconds)
        )

    def __str__(self) -> str:
        wall, cpu = self.wall_seconds * 1_000, self.cpu_seconds * 1_000
        return f"loop lag {wall:.0f} ms ({cpu:.0f} ms of it computing)"


class LoopLags:
    """The lags of bookies' loops in their metrics, from one look to the next.

    A lag that is not the longest since the bookie's start counts with the upper bound of its
    histogram's bucket.

    Args:
        metrics_ports: The metrics ports of the bookies.
    """

    def __init__(self, metrics_ports: Sequence[int]) -> None:
        self._ports = metrics_ports
        self._before = {port: samples_of(port) for port in metrics_ports}

    def since_last(self) -> Lag:
        """The longest delay of any bookie since the last call, or since this object was created."""
        longest = Lag()
        for port in self._ports:
            samples = samples_of(port)
            before, self._before[port] = self._before[port], samples
            longest = longest.or_longer(
                Lag(grown(WALL, before, samples), grown(CPU, before, samples))
            )
        return longest


def grown(name: str, before: dict[str, float], now: dict[str, float]) -> float:
    """The longest lag between two looks at the metrics of a bookie."""
    longest = now[f"{name}_max_seconds"]
    if longest > before[f"{name}_max_seconds"]:
        return longest
    found = below = 0.0
    bounds = [key for key in now if key.startswith(f"{name}_seconds_bucket ")]
    for key in sorted(bounds, key=_bound_of):
        count = now[key] - before[key]
        if count > below:
            found, below = _bound_of(key), count
    return min(found, longest)


def _bound_of(key: str) -> float:
    bound = key.rpartition(" ")[2]
    return math.inf if bound == "+Inf" else float(bound)


def samples_of(port: int) -> dict[str, float]:
    """All samples of a bookie. The key of a bucket ends with its bound."""
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    return {
        " ".join(filter(None, (sample.name, sample.labels.get("le")))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
