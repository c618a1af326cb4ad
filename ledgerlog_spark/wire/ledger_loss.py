"""The losses of a ledger that an operator accepted for the whole cluster (WIRE.md#znodes).

A loss can also be accepted for one bookie only (`accepted_loss`). This record is for auto-recovery:
workers no longer try to copy the accepted entries. Only ledgerlog reads and writes the record. No
acceptance is deleted, so the record shows each decision, and the operator who made it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ledgerlog_spark.errors import WireFormatError

FORMAT: Final = 1
SIZE_BYTES_MAX: Final = 524_288
ACCEPTANCES_MAX: Final = 100
"""Maximum number of acceptances of one ledger."""
RANGES_MAX: Final = 1_000
"""Maximum number of ranges of one acceptance."""
TEXT_MAX: Final = 500
"""Maximum number of characters of the reason, and of the name of the operator."""

EntryIds = tuple[int, int]
"""The first and the last entry of a range, both inclusive."""


@dataclass(frozen=True, slots=True)
class AcceptedRanges:
    """One decision of an operator.

    Attributes:
        ranges: The entries that are given up, at most `RANGES_MAX` ranges.
        is_forced: Whether a bookie may still have some of these entries.
        accepted_ms: Time by the clock of the operator's computer. It is only displayed to people.
        accepted_by: Name of the operator, and of the computer on which the command ran.
        reason: The reason that the operator gave.
    """

    ranges: tuple[EntryIds, ...]
    is_forced: bool
    accepted_ms: int
    accepted_by: str
    reason: str


@dataclass(frozen=True, slots=True)
class LedgerLoss:
    """All accepted losses of one ledger, oldest first."""

    ledger_id: int
    acceptances: tuple[AcceptedRanges, ...] = ()

    @property
    def ranges(self) -> tuple[EntryIds, ...]:
        """The entries of all acceptances. Ranges may overlap."""
        return tuple(each for acceptance in self.acceptances for each in acceptance.ranges)

    def with_acceptance(self, acceptance: AcceptedRanges) -> LedgerLoss:
        """Return the losses with one more acceptance."""
        return replace(self, acceptances=(*self.acceptances, acceptance))

    def encode(self) -> bytes:
        """Return the record as JSON in ASCII, with sorted keys."""
        fields = {**asdict(self), "format": FORMAT}
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> LedgerLoss:
        """Decode the data of a node."""
        try:
            fields: dict[str, Any] = json.loads(data[:SIZE_BYTES_MAX].decode("ascii"))
            version = fields.pop("format")
            if version == FORMAT:
                acceptances = tuple(map(_acceptance, fields.pop("acceptances")))
                return cls(**fields, acceptances=acceptances)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WireFormatError(
                f"not the record of accepted losses of a ledger ({error}): {data[:40]!r}"
            ) from error
        raise WireFormatError(
            f"the record of accepted losses has format {version!r}, but this release reads format "
            f"{FORMAT}; use a newer release",
            format=version,
        )


def _acceptance(fields: dict[str, Any]) -> AcceptedRanges:
    ranges = tuple((first, last) for first, last in fields.pop("ranges"))
    for first, last in ranges:
        if type(first) is not int or type(last) is not int or not 0 <= first <= last:
            raise ValueError(f"{first!r} to {last!r} is not a range of entries")
    return AcceptedRanges(ranges=ranges, **fields)
