"""The record of a bookie: the ids and the counters of its directories (WIRE.md#znodes).

Apache BookKeeper refuses unknown fields in a cookie. So this record is stored in a separate node,
outside the ledgers root. Only ledgerlog reads and writes this node.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Final

from ledgerlog_spark.errors import WireFormatError

FORMAT: Final = 1
SIZE_BYTES_MAX: Final = 65_536
_DIRECTORY_ID: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class KnownDirectory:
    """The state of a directory when the bookie last wrote its record.

    Attributes:
        directory_id: The id in the MANIFEST, 16 hex digits.
        starts: Number of starts with this directory.
        changes: Counter in the MANIFEST, which increases at each start and stop, and while the
            bookie stores data.
        doubt_epoch: The newest epoch of doubt in the MANIFEST. A new epoch begins each time that
            the directory may have lost entries.
    """

    directory_id: str
    starts: int
    changes: int
    doubt_epoch: int = 0


@dataclass(frozen=True, slots=True)
class KnownBookie:
    """The record of a bookie. It is never deleted, so no bookie id is used twice by mistake."""

    directories: tuple[KnownDirectory, ...]
    is_retired: bool = False  # whether an operator took the bookie out of service

    def encode(self) -> bytes:
        """Return the record as JSON in ASCII, with sorted keys."""
        fields = {**asdict(self), "format": FORMAT}
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> KnownBookie:
        """Decode the data of a node."""
        try:
            fields = json.loads(data[:SIZE_BYTES_MAX].decode("ascii"))
            version = fields.pop("format")
            if version == FORMAT:
                return cls(**_checked(fields))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WireFormatError(f"not the record of a bookie ({error}): {data[:40]!r}") from error
        raise WireFormatError(
            f"the record of a bookie has format {version!r}, but this release reads format "
            f"{FORMAT}; use a newer release",
            format=version,
        )


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(fields["is_retired"], bool):
        raise TypeError("is_retired is not a boolean")
    return {**fields, "directories": tuple(map(_directory, fields["directories"]))}


def _directory(fields: dict[str, Any]) -> KnownDirectory:
    numbers = (fields["starts"], fields["changes"], fields.get("doubt_epoch", 0))
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("a counter is not a number")
    if not _DIRECTORY_ID.fullmatch(fields["directory_id"]):
        raise ValueError("a directory has no id")
    return KnownDirectory(**fields)
