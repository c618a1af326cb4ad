"""Reports of the entries that no bookie returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledgerlog_spark.protocol.autorecovery.replicate.messages import UnreadableEntries


def as_ranges(entries: Sequence[UnreadableEntries]) -> tuple[UnreadableEntries, ...]:
    """Join consecutive entries that got the same answers. Each entry is reported once."""
    found: list[UnreadableEntries] = []
    for one in sorted(entries, key=lambda each: each.first_entry_id):
        before = found[-1] if found else None
        if before is not None and one.first_entry_id <= before.last_entry_id:
            continue
        is_next = before is not None and one.first_entry_id == before.last_entry_id + 1
        if before is not None and is_next and _is_alike(before, one):
            found[-1] = replace(before, last_entry_id=one.last_entry_id)
        else:
            found.append(one)
    return tuple(found)


def _is_alike(one: UnreadableEntries, other: UnreadableEntries) -> bool:
    return (one.is_lost, one.answers) == (other.is_lost, other.answers)
