"""The record of a loss that an operator accepted (WIRE.md#znodes).

A bookie writes this record when a ledger leaves limbo although entries are lost. The record is a
line of the file `AUDIT` of the bookie's directory, and a node outside the ledgers root. Only
ledgerlog reads and writes it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from ledgerlog_spark.errors import WireFormatError

FORMAT: Final = 1
SIZE_BYTES_MAX: Final = 65_536
ENTRIES_MAX: Final = 1_000
TEXT_MAX: Final = 500
"""Maximum number of characters of the reason, and of the name of the operator."""


@dataclass(frozen=True, slots=True)
class AcceptedLoss:
    """The entries of one ledger that a bookie gave up.

    Attributes:
        bookie_id: The bookie on which the ledger left limbo.
        ledger_id: The ledger.
        epoch: The epoch of doubt up to which the ledger is cleared by the accepted loss.
        state: State of the ledger in its metadata: `closed`, `open` or `in_recovery`.
        last_entry_id: Last entry of the ledger; -1 if the ledger is not closed.
        entry_ids: The first entries that no other bookie returned, at most `ENTRIES_MAX`.
        entries_count: Number of all entries that no other bookie returned.
        accepted_ms: Time by the clock of the bookie, in milliseconds since 1970.
        accepted_by: Name of the operator, and of the computer on which the command ran.
        reason: The reason that the operator gave.
    """

    bookie_id: str
    ledger_id: int
    epoch: int
    state: str
    last_entry_id: int
    entry_ids: tuple[int, ...]
    entries_count: int
    accepted_ms: int
    accepted_by: str
    reason: str

    def encode(self) -> bytes:
        """Return the record as a line of JSON in ASCII, with sorted keys and without line feed."""
        fields = {**asdict(self), "format": FORMAT}
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> AcceptedLoss:
        """Decode a record from a line of `AUDIT` or from the bytes of a node."""
        try:
            fields: dict[str, Any] = json.loads(data[:SIZE_BYTES_MAX].decode("ascii"))
            version = fields.pop("format")
            if version == FORMAT:
                return cls(**{**fields, "entry_ids": tuple(fields["entry_ids"])})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise WireFormatError(
                f"not the record of an accepted loss ({error}): {data[:40]!r}"
            ) from error
        raise WireFormatError(
            f"the record of an accepted loss has format {version!r}, but this release reads format "
            f"{FORMAT}; use a newer release",
            format=version,
        )
