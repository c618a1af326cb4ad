"""The node with the places of bookies and the policy of placement (WIRE.md#znodes).

An operator writes the node with a command. A place in this node replaces the place in the
registration of a bookie, so Apache's bookies can have racks and regions too. Only ledgerlog reads
and writes the node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ledgerlog_spark.errors import WireFormatError

FORMAT: Final = 1
SIZE_BYTES_MAX: Final = 1 << 19
"""Maximum size of the node in bytes. The places of about 5,000 bookies fit into this size."""

PLACE_KEYS: Final = frozenset({"host", "rack", "region"})


@dataclass(frozen=True, slots=True)
class Topology:
    """The places and the policy that an operator set for the whole cluster.

    Attributes:
        bookies: For each bookie id, the parts of the place that were set: `host`, `rack` and
            `region`.
        policy: The fields of the policy that were set. A missing field has its default.
    """

    bookies: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    policy: Mapping[str, int | bool] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the bytes of the node: JSON in ASCII, with sorted keys.

        Raises:
            WireFormatError: The node would be larger than `SIZE_BYTES_MAX`.
        """
        bookies = {bookie_id: dict(place) for bookie_id, place in self.bookies.items()}
        fields = {"format": FORMAT, "bookies": bookies, "policy": dict(self.policy)}
        data = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
        if len(data) > SIZE_BYTES_MAX:
            raise WireFormatError(
                f"the topology has {len(data)} bytes, but at most {SIZE_BYTES_MAX} are allowed: "
                "set racks and regions in the settings of the bookies instead",
                size_bytes=len(data),
            )
        return data

    @classmethod
    def decode(cls, data: bytes) -> Topology:
        """Return the topology in the bytes of the node."""
        try:
            fields: dict[str, Any] = json.loads(data[:SIZE_BYTES_MAX].decode("ascii"))
            version = fields.pop("format")
            if version == FORMAT:
                return cls(_checked_bookies(**fields["bookies"]), _checked_policy(fields["policy"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WireFormatError(f"not a topology ({error}): {data[:40]!r}") from error
        raise WireFormatError(
            f"the topology has format {version!r}, but this release reads format {FORMAT}; use a "
            "newer release",
            format=version,
        )


def _checked_bookies(**bookies: Any) -> dict[str, dict[str, str]]:
    for bookie_id, place in bookies.items():
        if not place.keys() <= PLACE_KEYS or not all(
            isinstance(value, str) and value for value in place.values()
        ):
            raise ValueError(f"the place of {bookie_id!r} is {place!r}")
    return bookies


def _checked_policy(policy: dict[str, Any]) -> dict[str, int | bool]:
    for name, value in policy.items():
        if not isinstance(value, int):
            raise ValueError(f"{name} of the policy is {value!r}")  # noqa: TRY004 - caught above
    return policy
