"""The stored entry: header, digest, payload (WIRE.md#entry).

    ledger id i64 | entry id i64 | last add confirmed i64 | length i64 | digest | payload

All numbers are big-endian. `length` counts the payload bytes of the ledger up to and including
this entry. The digest covers the header and then the payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import ge
from struct import Struct, pack, unpack
from typing import NamedTuple

from crc32c import crc32c

from ledgerlog_spark.errors import LocalProtocolError, WireFormatError
from ledgerlog_spark.model import ENTRY_HEADER_SIZE_BYTES, NO_ENTRY, DigestType
from ledgerlog_spark.wire.digests import DIGEST_SIZE_BYTES, Buffer, digest_function
from ledgerlog_spark.wire.stored_batch import StoredBatch

_HEADER = Struct(">qqqq")
_CRC32C = Struct(">I")
_new_tuple = tuple.__new__
_I64_MAX = (1 << 63) - 1

FEW_ENTRIES = 3
"""Number of entries up to which decoding them one by one is faster than decoding them by columns.
One entry takes 3 us, and a batch by columns takes at least 30 us."""

EncodedEntry = tuple[bytes, Buffer]
"""The header with the digest, and the payload as the caller passed it."""


class VerifiedEntry(NamedTuple):
    """One entry with verified digest and ids."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int  # LAC of the writer when it sent the entry, or NO_ENTRY
    length: int  # payload bytes of the ledger up to and including this entry
    payload: Buffer  # a slice of the stored entry, with the same type


class EntryColumns(NamedTuple):
    """The columns of one or more consecutive entries. Their digests and ids are verified."""

    last_adds_confirmed: tuple[int, ...]
    lengths: tuple[int, ...]
    payloads: tuple[Buffer, ...]


class EntryHeader(NamedTuple):
    """The first 32 bytes of a stored entry, which are not verified."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int


def decode_entry_header(stored: Buffer) -> EntryHeader:
    """Return the header of a stored entry, without verifying the digest."""
    if len(stored) < ENTRY_HEADER_SIZE_BYTES:
        raise WireFormatError(
            f"a stored entry of {len(stored)} bytes is shorter than its header, which has "
            f"{ENTRY_HEADER_SIZE_BYTES} bytes",
            size_bytes=len(stored),
        )
    return EntryHeader._make(_HEADER.unpack_from(stored))


class EntryCodec:
    """Encodes and verifies the entries of ledgers that have one digest type and password."""

    def __init__(self, digest_type: DigestType, password: bytes = b"") -> None:
        self.digest_type = digest_type
        self.digest_size_bytes = DIGEST_SIZE_BYTES[digest_type]
        self.overhead_bytes = ENTRY_HEADER_SIZE_BYTES + self.digest_size_bytes
        self._digest = digest_function(digest_type, password)

    def encode_run(
        self,
        *,
        ledger_id: int,
        first_entry_id: int,
        last_add_confirmed: int,  # LAC that the headers of all entries contain
        length: int,  # payload bytes of the ledger before the run
        payloads: Iterable[Buffer],  # the items of a memoryview must be single bytes
    ) -> list[EncodedEntry]:
        """Encode entries with consecutive ids from `first_entry_id`. Payloads are not copied."""
        _check_numbers(ledger_id, first_entry_id, last_add_confirmed, length)
        if self.digest_type is DigestType.CRC32C:
            return _encode_crc32c(ledger_id, first_entry_id, last_add_confirmed, length, payloads)
        pack, digest = _HEADER.pack, self._digest
        encoded: list[EncodedEntry] = []
        for entry_id, payload in enumerate(payloads, first_entry_id):
            length += len(payload)
            header = pack(ledger_id, entry_id, last_add_confirmed, length)
            encoded.append((header + digest(header, payload), payload))
        return encoded

    def decode(self, stored: Buffer, ledger_id: int, entry_id: int) -> VerifiedEntry:
        """Verify the entry in `stored`. If `entry_id` is NO_ENTRY, the entry may have any id."""
        overhead = self.overhead_bytes
        if len(stored) < overhead:
            raise WireFormatError(
                f"entry {entry_id} of ledger {ledger_id} has {len(stored)} bytes, but header and "
                f"digest alone take {overhead}",
                ledger_id=ledger_id,
                entry_id=entry_id,
            )
        found_ledger_id, found_entry_id, confirmed, length = _HEADER.unpack_from(stored)
        payload = stored[overhead:]
        header = stored[:ENTRY_HEADER_SIZE_BYTES]
        # A digest proves that the writer sent these bytes, but not that the header is valid. A
        # DUMMY digest proves nothing. So the fields of the header are checked, too. The LAC may be
        # above the entry id, because Apache's replication worker writes the LAC at the time of the
        # copy into a copied entry.
        if (
            found_ledger_id == ledger_id
            and (found_entry_id == entry_id or (entry_id == NO_ENTRY and found_entry_id >= 0))
            and confirmed >= NO_ENTRY
            and length >= len(payload)
            and self._digest(header, payload) == stored[ENTRY_HEADER_SIZE_BYTES:overhead]
        ):
            return _new_tuple(
                VerifiedEntry, (found_ledger_id, found_entry_id, confirmed, length, payload)
            )
        raise self._refusal(stored, ledger_id, entry_id)

    def decode_prefix(
        self, stored: Sequence[bytes], ledger_id: int, first_entry_id: int
    ) -> EntryColumns | None:
        """Return the entries before the first invalid entry; None if the first entry is invalid."""
        if self.digest_type is DigestType.CRC32C and len(stored) > FEW_ENTRIES:
            batch = stored if isinstance(stored, StoredBatch) else StoredBatch.of(stored)
            if batch.size_bytes_min >= self.overhead_bytes:
                columns = _decode_crc32c(batch, ledger_id, first_entry_id)
                if columns is not None:
                    return columns
        return self._decode_each(stored, ledger_id, first_entry_id)

    def _decode_each(
        self, stored: Sequence[bytes], ledger_id: int, first_entry_id: int
    ) -> EntryColumns | None:
        entries: list[VerifiedEntry] = []
        for entry_id, one in enumerate(stored, first_entry_id):
            try:
                entries.append(self.decode(one, ledger_id, entry_id))
            except WireFormatError:
                break
        if not entries:
            return None
        _, _, confirmed, lengths, payloads = zip(*entries, strict=True)
        return EntryColumns(confirmed, lengths, payloads)

    def _refusal(self, stored: Buffer, ledger_id: int, entry_id: int) -> WireFormatError:
        found = decode_entry_header(stored)
        if found.ledger_id != ledger_id or entry_id not in (found.entry_id, NO_ENTRY):
            what = f"their header names entry {found.entry_id} of ledger {found.ledger_id}"
        elif found.last_add_confirmed < NO_ENTRY:
            what = f"their last add confirmed is {found.last_add_confirmed}"
        elif found.length < len(stored) - self.overhead_bytes:
            what = f"their ledger length {found.length} is less than the length of the payload"
        else:
            what = f"their {self.digest_type.name} digest does not match"
        return WireFormatError(
            f"the bytes are not entry {entry_id} of ledger {ledger_id}: {what}",
            ledger_id=ledger_id,
            entry_id=entry_id,
        )


def _decode_crc32c(batch: StoredBatch, ledger_id: int, first_entry_id: int) -> EntryColumns | None:
    """Return the columns of all entries of a batch; None if any entry is invalid.

    The checks are the same as in `decode`, but take half the time. The digest must be CRC32C.
    """
    headers, digests, payloads = batch.cut(ENTRY_HEADER_SIZE_BYTES, _CRC32C.size)
    count = len(headers)
    fields = unpack(f">{4 * count}q", b"".join(headers))
    ids, confirmed, lengths = fields[1::4], fields[2::4], fields[3::4]
    checksums = map(crc32c, payloads, map(crc32c, headers))
    if (
        fields[0::4].count(ledger_id) == count
        and ids == tuple(range(first_entry_id, first_entry_id + count))
        and min(confirmed) >= NO_ENTRY
        and all(map(ge, lengths, map(len, payloads)))
        and pack(f">{count}I", *checksums) == b"".join(digests)
    ):
        return EntryColumns(confirmed, lengths, payloads)
    return None


def _encode_crc32c(
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    length: int,
    payloads: Iterable[Buffer],
) -> list[EncodedEntry]:
    # This is the loop of `encode_run` with the default digest inlined, because this saves time. The
    # loop takes 0.6 us for an entry of 1 KiB.
    pack, pack_digest, checksum = _HEADER.pack, _CRC32C.pack, crc32c
    encoded: list[EncodedEntry] = []
    append = encoded.append
    for entry_id, payload in enumerate(payloads, first_entry_id):
        length += len(payload)
        header = pack(ledger_id, entry_id, last_add_confirmed, length)
        append((header + pack_digest(checksum(payload, checksum(header))), payload))
    return encoded


def _check_numbers(
    ledger_id: int, entry_id: int, last_add_confirmed: int, length_before: int
) -> None:
    if (
        0 <= ledger_id <= _I64_MAX
        and 0 <= entry_id <= _I64_MAX
        and NO_ENTRY <= last_add_confirmed < entry_id
        and 0 <= length_before <= _I64_MAX
    ):
        return
    raise LocalProtocolError(
        f"no entry can have ledger id {ledger_id}, entry id {entry_id}, last add confirmed "
        f"{last_add_confirmed} and {length_before} bytes before it; ids start at 0, and the last "
        "add confirmed must be smaller than the entry id",
        ledger_id=ledger_id,
        entry_id=entry_id,
    )
