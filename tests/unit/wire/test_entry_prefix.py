from __future__ import annotations

from struct import Struct

import pytest
from crc32c import crc32c

from ledgerlog_spark.model import DigestType
from ledgerlog_spark.wire.entry import FEW_ENTRIES, EntryCodec
from ledgerlog_spark.wire.stored_batch import StoredBatch

LEDGER_ID = 7
FIRST = 5
PAYLOADS = [b"", b"a", b"b" * 1000, b"c"]


ALIKE = [b"abc", b"def", b"ghi", b"jkl"]


def stored(codec: EntryCodec, payloads: list[bytes]) -> list[bytes]:
    encoded = codec.encode_run(
        ledger_id=LEDGER_ID,
        first_entry_id=FIRST,
        last_add_confirmed=FIRST - 1,
        length=100,
        payloads=payloads,
    )
    return [b"".join(pieces) for pieces in encoded]


@pytest.mark.parametrize("payloads", [PAYLOADS, ALIKE], ids=["mixed", "alike"])
@pytest.mark.parametrize("digest_type", DigestType)
def test_a_prefix_is_what_decode_says_of_each_entry(
    digest_type: DigestType, payloads: list[bytes]
) -> None:
    codec = EntryCodec(digest_type, b"secret")
    entries = stored(codec, payloads)
    expected = [
        codec.decode(entry, LEDGER_ID, entry_id)[2:]
        for entry_id, entry in enumerate(entries, FIRST)
    ]
    for given in (entries, StoredBatch.of(entries)):
        columns = codec.decode_prefix(given, LEDGER_ID, FIRST)
        assert columns is not None
        assert list(zip(*columns, strict=True)) == expected
    assert [payload for _, _, payload in expected] == payloads


@pytest.mark.parametrize("count", range(1, 2 * FEW_ENTRIES))
def test_a_few_entries_and_many_are_held_to_the_same(count: int) -> None:
    codec = EntryCodec(DigestType.CRC32C)
    payloads = [b"%d" % number for number in range(count)]
    entries = stored(codec, payloads)
    whole = codec.decode_prefix(entries, LEDGER_ID, FIRST)
    assert whole is not None
    assert list(whole.payloads) == payloads
    for byte in (0, 8, 16, 31, 33, -1):
        bad = bytearray(entries[-1])
        bad[byte] ^= 1
        found = codec.decode_prefix([*entries[:-1], bytes(bad)], LEDGER_ID, FIRST)
        assert list(found.payloads if found else ()) == payloads[:-1]


@pytest.mark.parametrize("payloads", [PAYLOADS, ALIKE], ids=["mixed", "alike"])
@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC])
@pytest.mark.parametrize("byte", [0, 7, 15, 23, 31, 32, -1])
@pytest.mark.parametrize("bad_place", [0, 2, 3])
def test_a_prefix_ends_before_the_first_flipped_bit(
    digest_type: DigestType, byte: int, bad_place: int, payloads: list[bytes]
) -> None:
    codec = EntryCodec(digest_type, b"secret")
    entries = stored(codec, payloads)
    bad = bytearray(entries[bad_place])
    bad[byte] ^= 1
    entries[bad_place] = bytes(bad)
    columns = codec.decode_prefix(entries, LEDGER_ID, FIRST)
    found = () if columns is None else columns.payloads
    assert list(found) == payloads[:bad_place]


@pytest.mark.parametrize("payloads", [PAYLOADS, ALIKE], ids=["mixed", "alike"])
@pytest.mark.parametrize("digest_type", DigestType)
def test_entries_of_another_place_or_cut_short_are_no_prefix(
    digest_type: DigestType, payloads: list[bytes]
) -> None:
    codec = EntryCodec(digest_type, b"secret")
    entries = stored(codec, payloads)
    assert codec.decode_prefix(entries, LEDGER_ID + 1, FIRST) is None
    assert codec.decode_prefix(entries, LEDGER_ID, FIRST + 1) is None
    assert codec.decode_prefix([entries[0][:31]], LEDGER_ID, FIRST) is None
    assert codec.decode_prefix([], LEDGER_ID, FIRST) is None
    cut_later = codec.decode_prefix([*entries[:2], entries[2][:31]], LEDGER_ID, FIRST)
    assert cut_later is not None
    assert list(cut_later.payloads) == payloads[:2]


def third_entry(**fields: int) -> bytes:
    numbers = {"ledger_id": LEDGER_ID, "entry_id": FIRST + 2, "last_add_confirmed": 0, "length": 99}
    header = Struct(">qqqq").pack(*{**numbers, **fields}.values())
    return header + crc32c(ALIKE[2], crc32c(header)).to_bytes(4, "big") + ALIKE[2]


def test_a_copy_of_apaches_worker_has_a_larger_last_add_confirmed() -> None:
    """It writes the ledger's LAC of its time into the header (docs/INTEROP.md)."""
    codec = EntryCodec(DigestType.CRC32C)
    entries = stored(codec, ALIKE)
    entries[2] = third_entry(last_add_confirmed=FIRST + 1_000)
    columns = codec.decode_prefix(entries, LEDGER_ID, FIRST)
    assert columns is not None
    assert list(columns.payloads) == ALIKE
    assert codec.decode(entries[2], LEDGER_ID, FIRST + 2).last_add_confirmed == FIRST + 1_000


@pytest.mark.parametrize("field", ["last_add_confirmed", "length"])
def test_a_header_that_makes_no_sense_ends_the_prefix_though_its_digest_is_right(
    field: str,
) -> None:
    codec = EntryCodec(DigestType.CRC32C)
    entries = stored(codec, ALIKE)
    wrong = {"last_add_confirmed": -2, "length": len(ALIKE[2]) - 1}[field]
    entries[2] = third_entry(**{field: wrong})
    columns = codec.decode_prefix(entries, LEDGER_ID, FIRST)
    assert columns is not None
    assert list(columns.payloads) == ALIKE[:2]
