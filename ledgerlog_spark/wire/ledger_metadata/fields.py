"""The fields of a ledger's metadata record before they are known to make sense together."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import TypeVar

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import (
    NO_ENTRY,
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
)

E = TypeVar("E", bound=IntEnum)


@dataclass(slots=True)
class LedgerFields:
    """The fields of a record; None for those that it does not have."""

    write_quorum: int | None = None
    ensemble_size: int | None = None
    length: int | None = None
    last_entry_id: int | None = None
    state: int | None = None
    fragments: list[Fragment] = field(default_factory=list)
    digest_type: int | None = None
    password: bytes | None = None
    ack_quorum: int | None = None  # the write quorum if the record has none
    created_ms: int | None = None
    custom: dict[str, bytes] = field(default_factory=dict)
    token: int | None = None
    unknown_fields: bytes = b""  # tags and values, as in a message of format 3

    def checked(self, format_version: int) -> LedgerMetadata:
        """The metadata that the fields describe."""
        if self.write_quorum is None or self.ensemble_size is None:
            raise WireFormatError("it names no ensemble size or no write quorum")
        ack_quorum = self.write_quorum if self.ack_quorum is None else self.ack_quorum
        quorum = Quorum(self.ensemble_size, self.write_quorum, ack_quorum)
        self._check_fragments(self.ensemble_size)
        state = _member_of(LedgerState, "ledger state", self.state)
        last_entry_id, length = self._end(state)
        digest_type = DigestType.CRC32C
        if self.digest_type is not None:
            digest_type = _member_of(DigestType, "digest type", self.digest_type)
        return LedgerMetadata(
            quorum=quorum,
            fragments=tuple(self.fragments),
            state=state,
            last_entry_id=last_entry_id,
            length=length,
            digest_type=digest_type,
            password=self.password or b"",
            has_password=self.password is not None,
            created_ms=-1 if self.created_ms is None else self.created_ms,
            custom=self.custom,
            token=self.token,
            format_version=format_version,
            unknown_fields=self.unknown_fields,
        )

    def _check_fragments(self, ensemble_size: int) -> None:
        firsts = [fragment.first_entry_id for fragment in self.fragments]
        if firsts[:1] != [0] or any(first >= after for first, after in pairwise(firsts)):
            raise WireFormatError(f"fragments begin at entry 0 and rise, these begin at {firsts}")
        for fragment in self.fragments:
            if len(fragment.ensemble) != ensemble_size or not all(fragment.ensemble):
                raise WireFormatError(
                    f"the ensemble from entry {fragment.first_entry_id} does not have "
                    f"{ensemble_size} bookies"
                )

    def _end(self, state: LedgerState) -> tuple[int, int]:
        # Only a closed ledger has an end; Apache writes 0 and -1 otherwise, and reads neither.
        if state is not LedgerState.CLOSED:
            return NO_ENTRY, 0
        last_entry_id, length = self.last_entry_id, self.length
        if last_entry_id is None or length is None or last_entry_id < NO_ENTRY or length < 0:
            raise WireFormatError(
                f"closed at entry {last_entry_id} with {length} bytes, which cannot be"
            )
        return last_entry_id, length


def _member_of(kind: type[E], what: str, number: int | None) -> E:
    for member in kind:
        if member == number:
            return member
    raise WireFormatError(f"unknown {what} {number}")
