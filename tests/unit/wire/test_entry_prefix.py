from __future__ import annotations

import pytest

from ledgerlog_spark.model import DigestType
from ledgerlog_spark.wire.entry_codec import EntryCodec

LEDGER_ID = 7
FIRST = 5
PAYLOADS = [b"", b"a", b"b" * 1000, b"c"]


def stored(codec: EntryCodec) -> list[bytes]:
    encoded = codec.encode_run(
        ledger_id=LEDGER_ID,
        first_entry_id=FIRST,
        last_add_confirmed=FIRST - 1,
        length=100,
        payloads=PAYLOADS,
    )
    return [b"".join(pieces) for pieces in encoded]


@pytest.mark.parametrize("digest_type", DigestType)
def test_a_prefix_is_what_decode_says_of_each_entry(digest_type: DigestType) -> None:
    codec = EntryCodec(digest_type, b"secret")
    entries = stored(codec)
    expected = [
        codec.decode(entry, LEDGER_ID, entry_id)[1:]
        for entry_id, entry in enumerate(entries, FIRST)
    ]
    assert codec.decode_prefix(entries, LEDGER_ID, FIRST, tuple) == expected
    assert [payload for _, _, _, payload in expected] == PAYLOADS


@pytest.mark.parametrize("digest_type", [DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC])
@pytest.mark.parametrize("byte", [0, 7, 15, 23, 31, 32, -1])
def test_a_prefix_ends_before_the_first_flipped_bit(digest_type: DigestType, byte: int) -> None:
    codec = EntryCodec(digest_type, b"secret")
    entries = stored(codec)
    bad = bytearray(entries[2])
    bad[byte] ^= 1
    entries[2] = bytes(bad)
    prefix = codec.decode_prefix(entries, LEDGER_ID, FIRST, tuple)
    assert [entry_id for entry_id, _, _, _ in prefix] == [FIRST, FIRST + 1]


@pytest.mark.parametrize("digest_type", DigestType)
def test_entries_of_another_place_or_cut_short_are_no_prefix(digest_type: DigestType) -> None:
    codec = EntryCodec(digest_type, b"secret")
    entries = stored(codec)
    assert codec.decode_prefix(entries, LEDGER_ID + 1, FIRST, tuple) == []
    assert codec.decode_prefix(entries, LEDGER_ID, FIRST + 1, tuple) == []
    assert codec.decode_prefix([entries[0][:31]], LEDGER_ID, FIRST, tuple) == []
    assert codec.decode_prefix([], LEDGER_ID, FIRST, tuple) == []
