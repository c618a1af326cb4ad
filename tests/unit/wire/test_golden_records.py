from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import LocalProtocolError, MetadataFormatError, WireFormatError
from ledgerlog_spark.model import (
    BookieInfo,
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
)
from ledgerlog_spark.wire.cookie import Cookie
from ledgerlog_spark.wire.ledger_metadata.older_formats import message_of_lines, message_of_text
from ledgerlog_spark.wire.ledger_metadata.record import (
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from ledgerlog_spark.wire.protobuf.binary import encode_bytes, encode_number, encode_varint
from ledgerlog_spark.wire.registration import decode_service_info, encode_service_info
from ledgerlog_spark.wire.znodes import HIERARCHICAL, Layout, ledger_id_of, ledger_path
from tests.unit.wire.golden import parametrized, records

FIRST = Fragment(0, ("10.0.0.1:3181", "10.0.0.2:3181", "bookie-three"))
SECOND = Fragment(100, ("10.0.0.1:3181", "10.0.0.4:3181", "bookie-three"))


def described(record: dict[str, Any]) -> LedgerMetadata:
    """The metadata in the vector's description. Format 1 has fewer fields."""
    version, state = int(record["format_version"]), LedgerState[record["state"]]
    is_closed = state is LedgerState.CLOSED
    metadata = LedgerMetadata(
        quorum=Quorum(3, 3, 2),
        fragments=(FIRST, SECOND) if is_closed else (FIRST,),
        state=state,
        last_entry_id=250 if is_closed else -1,
        length=123456 if is_closed else 0,
        digest_type=DigestType.CRC32C,
        password=b"hunter2",
        custom={"application": b"pulsar"},
        format_version=version,
    )
    if version == 1:
        return replace(
            metadata, quorum=Quorum(3, 3, 3), password=b"", has_password=False, custom={}
        )
    if version == 3:
        created, token = (1700000000000, 0x1122334455667788) if is_closed else (-1, 0)
        return replace(metadata, created_ms=created, token=token)
    return replace(metadata, created_ms=1700000000000 if is_closed and has_ctime(record) else -1)


def has_ctime(record: dict[str, Any]) -> bool:
    return b"ctime" in bytes.fromhex(record["bytes"])


@parametrized("metadata")
def test_metadata_record_is_read_as_apache_wrote_it(record: dict[str, Any]) -> None:
    assert decode_ledger_metadata(bytes.fromhex(record["bytes"])) == described(record)


@parametrized("metadata")
def test_metadata_record_is_written_in_format_3_whatever_it_was_read_in(
    record: dict[str, Any],
) -> None:
    metadata = described(record)
    written = encode_ledger_metadata(metadata)
    assert decode_ledger_metadata(written) == replace(metadata, format_version=3)
    if metadata.format_version == 3:
        assert written.hex() == record["bytes"]


@parametrized("ledger_path")
def test_ledger_path_and_id_are_apaches(record: dict[str, Any]) -> None:
    ledger_id = int(record["ledger_id"])
    assert ledger_path(ledger_id) == record["path"]
    assert ledger_id_of(record["path"]) == ledger_id


@parametrized("layout")
def test_layout_is_apaches(record: dict[str, Any]) -> None:
    assert Layout(record["factory"], int(record["version"])) == HIERARCHICAL
    assert HIERARCHICAL.encode() == record["text"].encode()
    assert Layout.decode(record["text"].encode()) == HIERARCHICAL


@parametrized("bookie_service_info")
def test_registration_record_is_apaches(record: dict[str, Any]) -> None:
    info = BookieInfo("bookie-1", "10.0.0.1", 3181, None, {"k": "v"})
    assert encode_service_info(info).hex() == record["bytes"]
    assert decode_service_info("bookie-1", bytes.fromhex(record["bytes"])) == info


@parametrized("cookie")
def test_cookie_is_apaches(record: dict[str, Any]) -> None:
    cookie = Cookie(
        bookie_id="10.0.0.1:3181",
        journal_directory="1\t/j",
        ledger_directories=("/l1", "/l2"),
        instance_id="11111111-2222-3333-4444-555555555555",
    )
    assert cookie.encode() == record["text"].encode()
    assert Cookie.decode(record["text"].encode()) == cookie


def test_registration_with_control_service_and_properties_reads_back() -> None:
    info = BookieInfo("bookie-0", "127.0.0.1", 3181, 4181, {"ledgerlog.ops": "ADD_RUN/1"})
    decoded = decode_service_info("bookie-0", encode_service_info(info))
    assert decoded == info
    assert decoded.takes_runs


def test_registration_without_data_is_the_address_in_the_bookie_id() -> None:
    assert decode_service_info("10.0.0.1:3181", b"") == BookieInfo(
        "10.0.0.1:3181", "10.0.0.1", 3181
    )


@pytest.mark.parametrize("bookie_id", ["bookie-0", ":3181", "host:", "host:0", "host:65536", "h:x"])
def test_registration_without_data_and_without_address_is_refused(bookie_id: str) -> None:
    with pytest.raises(WireFormatError, match="host:port"):
        decode_service_info(bookie_id, b"")


def test_registration_without_a_v2_endpoint_is_refused() -> None:
    with pytest.raises(WireFormatError, match="bookie-rpc"):
        decode_service_info("b", encode_bytes(7, encode_bytes(1, b"k")))


@pytest.mark.parametrize(
    "path",
    ["", "/", "/00/0000/L00001", "/00/0000/0001", "/21/4748/L3647", "/99/9999/L9999",
     "/000/0000/0000/0000/L0001", "/922/3372/0368/5477/L5808", "/\u0660\u0660/0000/L0000",
     "/00/0000/L0001\n", "x/00/0000/L0001"],
)  # fmt: skip
def test_path_that_no_ledger_has_is_refused(path: str) -> None:
    with pytest.raises(WireFormatError):
        ledger_id_of(path)


@pytest.mark.parametrize("ledger_id", [-1, 1 << 63])
def test_ledger_id_out_of_range_has_no_path(ledger_id: int) -> None:
    with pytest.raises(WireFormatError):
        ledger_path(ledger_id)


def with_message(message: bytes) -> bytes:
    return b"BookieMetadataFormatVersion\t3\n" + encode_varint(len(message)) + message


def open_message() -> bytes:
    record = encode_ledger_metadata(LedgerMetadata(Quorum(3, 3, 2), (FIRST,)))
    return record.split(b"\n", 1)[1][1:]


def test_field_of_a_newer_bookkeeper_survives_a_change_of_the_record() -> None:
    newer = encode_number(900, 7) + encode_bytes(901, b"kept")
    metadata = decode_ledger_metadata(with_message(open_message() + newer))
    assert metadata.unknown_fields == newer
    rewritten = encode_ledger_metadata(metadata.closed(last_entry_id=3, length=9))
    assert rewritten.endswith(newer)
    assert decode_ledger_metadata(rewritten).unknown_fields == newer


def test_unknown_field_within_a_fragment_is_refused_and_not_dropped() -> None:
    fragment = encode_bytes(
        6, encode_bytes(1, b"a") * 3 + encode_number(2, 5) + encode_number(9, 1)
    )
    with pytest.raises(MetadataFormatError, match="unknown field 9"):
        decode_ledger_metadata(with_message(open_message() + fragment))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (b"", "formats 1, 2 and 3"),
        (b"BookieMetadataFormatVersion\t4\nx", "newer"),
        (b"BookieMetadataFormatVersion\t3", "formats 1, 2 and 3"),
        (with_message(open_message()) + b"\0", "announced"),
        (with_message(open_message())[:-1], "announced"),
        (with_message(b""), "ensemble size"),
        (with_message(open_message() + encode_number(5, 4)), "ledger state 4"),
        (with_message(open_message() + encode_number(7, 0)), "digest type 0"),
        (with_message(open_message() + encode_number(9, 4)), "ack_quorum"),
        (with_message(open_message() + encode_number(5, 3) + encode_number(4, -2)), "entry -2"),
        (with_message(open_message() + encode_bytes(5, b"x")), "not a number"),
        (b"BookieMetadataFormatVersion\t1\n3\n3\n", "three sizes"),
        (b"BookieMetadataFormatVersion\t1\n3\n3\n0\n0\ta\tb\tc\n5\tCLOSED\nmore", "follow"),
        (b"BookieMetadataFormatVersion\t2\nquorumSize: 3\nfuture: 4\n", "unknown field future"),
        (b"BookieMetadataFormatVersion\t2\nquorumSize: 3\nquorumSize: 4\n", "twice"),
        (b"BookieMetadataFormatVersion\t2\nquorumSize: [3]\n", "unexpected"),
    ],
)  # fmt: skip
def test_metadata_that_cannot_be_understood_is_refused(record: bytes, words: str) -> None:
    with pytest.raises(MetadataFormatError, match=words):
        decode_ledger_metadata(record)


def test_metadata_of_a_ledger_closed_while_empty_is_read() -> None:
    metadata = decode_ledger_metadata(with_message(open_message() + encode_number(5, 3)))
    assert metadata.is_closed
    assert (metadata.last_entry_id, metadata.length) == (-1, 0)


@pytest.mark.parametrize(
    "fragments",
    [(), (Fragment(1, FIRST.ensemble),), (SECOND, FIRST), (FIRST, FIRST), (Fragment(0, ("a",)),)],
)
def test_metadata_whose_fragments_contradict_it_is_not_written(
    fragments: tuple[Fragment, ...],
) -> None:
    with pytest.raises(LocalProtocolError):
        encode_ledger_metadata(LedgerMetadata(Quorum(3, 3, 2), fragments))


@pytest.mark.parametrize(
    "text",
    [
        b"", b'4\nbookieHost: "x"\n', b"5\n", b'5\nbookieHost: "x"\n',
        b'5\nbookieHost: "x"\njournalDir: "/j"\nledgerDirs: "2\\t/l1"\n',
        b'5\nbookieHost: "x"\njournalDir: "/j"\nledgerDirs: "1\\t/l1"\nfuture: "y"\n',
        b'5\nbookieHost: "x"\nbookieHost: "y"\njournalDir: "/j"\nledgerDirs: "1\\t/l1"\n',
        b'5\nbookieHost: "\\377"\njournalDir: "/j"\nledgerDirs: "1\\t/l1"\n',
    ],
)  # fmt: skip
def test_cookie_that_cannot_be_understood_is_refused(text: bytes) -> None:
    with pytest.raises(WireFormatError):
        Cookie.decode(text)


def test_cookie_with_index_directories_and_odd_names_reads_back() -> None:
    cookie = Cookie("b", '/a "b"\\ü\n', ("/l",), None, ("/i", "/k"))
    assert Cookie.decode(cookie.encode()) == cookie


def in_format_2(last_entry_id: int) -> bytes:
    return (
        b"BookieMetadataFormatVersion\t2\nquorumSize: 1\nensembleSize: 1\nlength: 0\n"
        b"lastEntryId: %d\nstate: CLOSED\nsegment {\n"
        b'  ensembleMember: "a:1"\n  firstEntryId: 0\n}\ndigestType: CRC32C\n' % last_entry_id
    )


def in_format_1(last_entry_id: int) -> bytes:
    return b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\ta:1\n%d\tCLOSED\n" % last_entry_id


@pytest.mark.parametrize("record", [in_format_2, in_format_1])
def test_number_of_a_text_format_beyond_64_bits_is_refused_and_not_cut(
    record: Callable[[int], bytes],
) -> None:
    assert decode_ledger_metadata(record((1 << 63) - 1)).last_entry_id == (1 << 63) - 1
    for number in (1 << 63, (1 << 63) + 5, 10**19 - 1):
        with pytest.raises(MetadataFormatError, match="not a number of 64 bits"):
            decode_ledger_metadata(record(number))


@pytest.mark.parametrize("convert", [message_of_text, message_of_lines])
def test_smallest_number_of_a_text_format_is_that_of_64_bits(
    convert: Callable[[bytes], bytes],
) -> None:
    record = b"lastEntryId: %d\n" if convert is message_of_text else b"1\n1\n%d\n"
    least = encode_number(4 if convert is message_of_text else 3, -(1 << 63))
    assert least in convert(record % -(1 << 63))
    for number in (-(1 << 63) - 1, 1 - 10**19):
        with pytest.raises(WireFormatError, match="not a number of 64 bits"):
            convert(record % number)


def test_golden_vectors_of_the_text_format_cover_both_kinds_of_part() -> None:
    texts = [bytes.fromhex(r["bytes"]) for r in records("metadata") if r["format_version"] == "2"]
    assert all(b"segment {" in text and b"customMetadata {" in text for text in texts)
