"""Defines which rules an ensemble should keep, and which of these rules it must keep."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import check_type


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """The rules for the bookies of an ensemble.

    The copies of an entry are always on different bookies, and on different hosts unless
    `allow_same_host` is set. The other rules are given up if no ensemble keeps them all: first the
    quarantine, then the free bytes, the racks, and the regions. A rule with `enforce_...` is never
    given up: if no ensemble keeps this rule, no ledger is created and no failed bookie is replaced.

    Attributes:
        min_racks_per_write_quorum: Minimum number of racks that should have a copy of an entry. The
            rule applies if the rack of at least one bookie is known. All bookies of a region whose
            racks are unknown count as in one rack. The value 1 means no rule.
        min_regions_per_write_quorum: Like `min_racks_per_write_quorum`, but for regions.
        enforce_racks: Whether `min_racks_per_write_quorum` is never given up.
        enforce_regions: Whether `min_regions_per_write_quorum` is never given up.
        enforce_free_bytes: Whether bookies that reported no free bytes are never chosen.
        enforce_quarantine: Whether a bookie that failed three times within a minute is never chosen
            in the next five minutes.
        allow_same_host: Whether two copies may be on one host if there are too few hosts. Hosts
            with a loopback address always count as different, so that local clusters work.

    Raises:
        ConfigurationError: A value has another type, or a number is below 1.
    """

    min_racks_per_write_quorum: int = 2
    min_regions_per_write_quorum: int = 2
    enforce_racks: bool = False
    enforce_regions: bool = False
    enforce_free_bytes: bool = False
    enforce_quarantine: bool = False
    allow_same_host: bool = False

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(one.default, bool):
                if not isinstance(value, bool):
                    raise ConfigurationError(
                        f"{one.name} must be True or False, got {value!r}",
                        key=one.name,
                        value=value,
                    )
                continue
            check_type(one.name, value, int)
            if value < 1:
                raise ConfigurationError(
                    f"{one.name} must be at least 1, got {value}", key=one.name, value=value
                )
