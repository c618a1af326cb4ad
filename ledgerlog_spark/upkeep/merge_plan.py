"""Which listed ranges are worth merging (LOGS.md#U14). Pure.

A merge copies every byte of its ranges. So the largest range of a background merge is at most a
quarter of its bytes. Each row is then copied once for every fourfold growth of its range: a few
times in all, however long the log exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log.state.records import Item

TARGET_BYTES_DEFAULT = 256 << 20
BACKGROUND_RANGES_MIN = 64
RUN_LEDGERS_MAX = 1_000
"""Maximum number of ledgers that one switch marks; so its transaction is far below the store's 1
MiB."""

RUN_RANGES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Limits of the merges that are worth their cost."""

    target_bytes: int = TARGET_BYTES_DEFAULT
    """Most payload bytes of a merged range; ranges of more than half of it are not merged."""
    ranges_min: int = 2  # shorter runs are not merged; at least 2
    growth: int = 1
    """A run has at least this many times the bytes of its largest range; 1 for no limit."""

    def __post_init__(self) -> None:
        if self.target_bytes < 1 or self.ranges_min < 2 or self.growth < 1:  # noqa: PLR2004
            raise ConfigurationError(
                f"a merge needs at least 2 ranges and a target of more than 0 bytes, got "
                f"{self.ranges_min} ranges and {self.target_bytes} bytes"
            )


BACKGROUND = MergePolicy(ranges_min=BACKGROUND_RANGES_MIN, growth=4)
"""The policy of upkeep that no user started."""


@dataclass(frozen=True, slots=True)
class MergeableLedger:
    """The properties of a ledger that decide with which others its ranges can be merged.

    Attributes:
        is_closed: It has no writer any more. A merge removes the ledgers of its ranges, so the
            next batch must not go into one of them.
        password: Only ranges with the same password are merged.
    """

    is_closed: bool
    password: bytes = b""


def plan_merges(
    items: Sequence[Item], ledgers: Mapping[int, MergeableLedger], policy: MergePolicy
) -> list[tuple[Item, ...]]:
    """Runs of neighbours that each become one range; oldest first.

    `items` are those of the newest version; ranges of ledgers that are not in `ledgers` are not
    merged.
    """
    found: list[tuple[Item, ...]] = []
    for stretch in _stretches(items, ledgers, policy):
        for run in _cut(stretch, policy):
            found += _worth_it(run, policy)
    return found


def _stretches(
    items: Sequence[Item], ledgers: Mapping[int, MergeableLedger], policy: MergePolicy
) -> Iterator[list[Item]]:
    """Sequences of neighbours that may be merged with each other, as long as possible."""
    stretch: list[Item] = []
    fits: tuple[int, bytes] | None = None
    for item in items:
        ledger = ledgers.get(item.ledger_id)
        is_small = item.size_bytes * 2 <= policy.target_bytes
        if ledger is None or not ledger.is_closed or not is_small:
            key = None
        else:
            key = item.schema_id, ledger.password
        if key != fits and stretch:
            yield stretch
            stretch = []
        fits = key
        if key is not None:
            stretch.append(item)
    if stretch:
        yield stretch


def _cut(stretch: Sequence[Item], policy: MergePolicy) -> Iterator[list[Item]]:
    """Runs of a size that one merge can take."""
    run: list[Item] = []
    ledger_ids: set[int] = set()
    size_bytes = 0
    for item in stretch:
        is_full = size_bytes + item.size_bytes > policy.target_bytes or len(run) >= RUN_RANGES_MAX
        if run and (is_full or len(ledger_ids | {item.ledger_id}) > RUN_LEDGERS_MAX):
            yield run
            run, ledger_ids, size_bytes = [], set(), 0
        run.append(item)
        ledger_ids.add(item.ledger_id)
        size_bytes += item.size_bytes
    if run:
        yield run


def _worth_it(run: Sequence[Item], policy: MergePolicy) -> list[tuple[Item, ...]]:
    """The run, or its parts beside ranges that are large already."""
    found: list[tuple[Item, ...]] = []
    waiting = [list(run)]
    while waiting:
        part = waiting.pop()
        if len(part) < policy.ranges_min:
            continue
        sizes = [item.size_bytes for item in part]
        largest = max(sizes)
        if largest * policy.growth <= sum(sizes):
            found.append(tuple(part))
            continue
        at = sizes.index(largest)
        waiting += [part[at + 1 :], part[:at]]
    return sorted(found, key=lambda part: part[0].first_offset)
