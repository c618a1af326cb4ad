"""The cases: each byte of each file of a scenario, damaged in several ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.corruption.scenarios import Scenario, Stored
from tests.sim.disk import SECTOR

ONE_BIT = "one bit"
"""The number of the bit depends on the offset, from 0 to 6."""
ALL_BITS = "all bits"
HIGH_BIT = "high bit"
ZERO = "zero"
TRUNCATED = "truncated"
ZERO_SECTOR = "zero sector"
KINDS = (ONE_BIT, HIGH_BIT, ALL_BITS, ZERO, ZERO_SECTOR, TRUNCATED)


@dataclass(frozen=True, slots=True)
class Case:
    """One damage.

    Attributes:
        scenario: Name of the scenario.
        file: Name of the file.
        offset: The damaged byte, the first one of a sector, or the new length of the file.
        kind: One of KINDS.
    """

    scenario: str
    file: str
    offset: int
    kind: str


def cases_of(scenario: Scenario, files: frozenset[str]) -> Iterator[Case]:
    """All cases that change a byte of one of these files."""
    stored = {**scenario.files, **scenario.journal}
    for name in sorted(files):
        data = stored[name].data
        for offset in range(len(data)):
            for kind in KINDS:
                case = Case(scenario.name, name, offset, kind)
                if kind == TRUNCATED or damaged(stored[name], case).data != data:
                    yield case


def damaged(stored: Stored, case: Case) -> Stored:
    """The file after the damage; a file that is cut has lost its allocated rest too."""
    data, offset = stored.data, case.offset
    if case.kind == TRUNCATED:
        return Stored(data[:offset])
    if case.kind == ZERO_SECTOR:
        if offset % SECTOR:
            return stored
        end = min(offset + SECTOR, len(data))
        return Stored(data[:offset] + bytes(end - offset) + data[end:], stored.allocated)
    before = data[offset]
    if case.kind == HIGH_BIT and not before:
        return stored  # in zeros, the other patterns are enough
    masks = {ONE_BIT: 1 << offset % 7, HIGH_BIT: 0x80, ALL_BITS: 0xFF, ZERO: before}
    byte = bytes((before ^ masks[case.kind],))
    return Stored(data[:offset] + byte + data[offset + 1 :], stored.allocated)
