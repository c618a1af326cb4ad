"""Decides which listed ranges are worth merging (LOGS.md#U14). The functions are pure.

A merge copies every byte of its ranges. To limit the number of copies, the largest range of a
background merge has at most a quarter of all merged bytes. So each merge moves a row to a range
that is at least four times as large as the row's previous range. As a result, a row is copied only
a few times, however long the log exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.protocol.log.state.records import Item

TARGET_BYTES_DEFAULT = 256 << 20
BACKGROUND_RANGES_MIN = 64
RUN_LEDGERS_MAX = 1_000
"""Maximum number of ledgers in one merge.

One transaction marks all these ledgers, and its size must be far less than 1 MiB.
"""

RUN_RANGES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Limits that decide whether a merge is worth its cost."""

    target_bytes: int = TARGET_BYTES_DEFAULT
    """Maximum number of payload bytes of a merged range.

    Ranges of more than half of this size are not merged.
    """
    ranges_min: int = 2  # minimum number of ranges in a run, at least 2
    growth: int = 1
    """Minimum size of a run, as a multiple of the size of its largest range; 1 means no limit."""

    def __post_init__(self) -> None:
        if self.target_bytes < 1 or self.ranges_min < 2 or self.growth < 1:  # noqa: PLR2004
            raise ConfigurationError(
                f"a merge needs at least 2 ranges and a target of more than 0 bytes, got "
                f"{self.ranges_min} ranges and {self.target_bytes} bytes"
            )


BACKGROUND = MergePolicy(ranges_min=BACKGROUND_RANGES_MIN, growth=4)
"""The policy for merges in the background."""


def plan_merges(
    items: Sequence[Item], passwords: Mapping[int, bytes], policy: MergePolicy
) -> list[tuple[Item, ...]]:
    """Return the runs of neighbouring ranges to merge. The oldest run is first.

    A merge turns each run into one range. `items` are the items of the newest version. Ranges of
    ledgers that are not in `passwords` are not merged. An open ledger must not be in `passwords`,
    because its writer may continue to use the ledger.
    """

    def kind_of(item: Item) -> tuple[int, bytes] | None:
        """Return the kind of an item, or None if the item is never merged.

        Neighbouring items of the same kind can be merged.
        """
        password = passwords.get(item.ledger_id)
        is_small = item.size_bytes * 2 <= policy.target_bytes
        return (item.schema_id, password) if is_small and password is not None else None

    found: list[tuple[Item, ...]] = []
    for kind, stretch in groupby(items, kind_of):
        if kind is not None:
            for run in _cut(stretch, policy):
                found += _worth_it(run, policy)
    return found


def _cut(stretch: Iterable[Item], policy: MergePolicy) -> Iterator[list[Item]]:
    """Cut neighbouring items of one kind into runs that are within the limits of one merge."""
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
    """Return a list of the run if the run is worth merging.

    Otherwise, return the parts of the run, between large ranges, that are worth merging.
    """
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
