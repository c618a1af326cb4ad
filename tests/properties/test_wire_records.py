from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.errors import MetadataFormatError, WireFormatError
from ledgerlog_spark.model import (
    BookieInfo,
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
)
from ledgerlog_spark.wire.accepted_loss import AcceptedLoss
from ledgerlog_spark.wire.cookie import Cookie
from ledgerlog_spark.wire.known_bookie import KnownBookie, KnownDirectory
from ledgerlog_spark.wire.ledger_metadata.record import (
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from ledgerlog_spark.wire.protobuf import text as protobuf_text
from ledgerlog_spark.wire.protobuf.binary import encode_bytes, encode_number, fields_of
from ledgerlog_spark.wire.registration import decode_service_info, encode_service_info
from ledgerlog_spark.wire.znodes import Layout, ledger_id_of, ledger_path
from tests.unit.wire.golden import records

METADATA = [bytes.fromhex(record["bytes"]) for record in records("metadata")]
OTHERS = [bytes.fromhex(record["bytes"]) for record in records("bookie_service_info")] + [
    record["text"].encode() for record in records("cookie", "layout")
]
OTHERS.append(KnownBookie((KnownDirectory("0123456789abcdef", 3, 9),)).encode())
OTHERS.append(AcceptedLoss("b1", 7, 1, "closed", 9, (4, 5), 2, 1, "me", "why").encode())
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def decode_everything(data: bytes) -> None:
    with suppress(MetadataFormatError):
        metadata = decode_ledger_metadata(data)
        assert decode_ledger_metadata(encode_ledger_metadata(metadata)).quorum == metadata.quorum
    with suppress(WireFormatError):
        Cookie.decode(data)
    with suppress(WireFormatError):
        KnownBookie.decode(data)
    with suppress(WireFormatError):
        AcceptedLoss.decode(data)
    with suppress(WireFormatError):
        Layout.decode(data)
    with suppress(WireFormatError):
        decode_service_info("bookie-0", data)
    with suppress(WireFormatError):
        list(fields_of(data))
    with suppress(WireFormatError):
        protobuf_text.parse(data)
    with suppress(WireFormatError):
        ledger_id_of(data.decode("latin-1"))


headers = st.sampled_from([b"", b"5\n", b"2\n"]) | st.integers(0, 4).map(
    lambda version: b"BookieMetadataFormatVersion\t%d\n" % version
)
text_pieces = st.lists(
    st.sampled_from(
        [b"quorumSize", b"segment", b"ensembleMember", b":", b"{", b"}", b" ", b"\n", b"\t", b"3",
         b"0", b"-102", b"CLOSED", b'"a"', b'"\\377\\q"', b"bookieHost", b"#", b"'", b"\xff"]
    ),
    max_size=30,
).map(b"".join)  # fmt: skip


@given(headers, st.binary(max_size=120) | text_pieces)
def test_decoders_of_records_take_any_bytes(header: bytes, rest: bytes) -> None:
    decode_everything(header + rest)


@given(st.sampled_from(METADATA + OTHERS), st.data())
def test_decoders_of_records_take_golden_records_with_one_bit_flipped(
    record: Any, data: st.DataObject
) -> None:
    changed = bytearray(record)
    bit = data.draw(st.integers(0, 8 * len(changed) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    decode_everything(bytes(changed))


@pytest.mark.parametrize("record", METADATA + OTHERS)
def test_decoders_of_records_take_golden_records_cut_at_any_byte(record: bytes) -> None:
    for size in range(len(record)):
        decode_everything(record[:size])


@pytest.mark.parametrize("record", [record for record in METADATA if b"\t3\n" in record[:32]])
def test_binary_metadata_record_cut_at_any_byte_is_refused(record: bytes) -> None:
    for size in range(len(record)):
        with pytest.raises(MetadataFormatError):
            decode_ledger_metadata(record[:size])


@st.composite
def metadata_records(draw: st.DrawFn) -> LedgerMetadata:
    ensemble_size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, ensemble_size))
    quorum = Quorum(ensemble_size, write_quorum, draw(st.integers(1, write_quorum)))
    later = draw(st.lists(st.integers(1, 1 << 62), max_size=3, unique=True).map(sorted))
    ensembles = st.lists(names, min_size=ensemble_size, max_size=ensemble_size).map(tuple)
    fragments = tuple(Fragment(first, draw(ensembles)) for first in [0, *later])
    metadata = LedgerMetadata(
        quorum=quorum,
        fragments=fragments,
        state=draw(st.sampled_from([LedgerState.OPEN, LedgerState.IN_RECOVERY])),
        digest_type=draw(st.sampled_from(list(DigestType))),
        password=draw(st.binary(max_size=20)),
        created_ms=draw(st.integers(-1, 1 << 50)),
        custom=draw(st.dictionaries(names, st.binary(max_size=20), max_size=3)),
        token=draw(st.none() | i64),
        unknown_fields=draw(
            st.sampled_from([b"", encode_number(77, 5), encode_bytes(78, b"x") * 2])
        ),
    )  # fmt: skip
    if draw(st.booleans()):
        last_entry_id = draw(st.integers(-1, (1 << 63) - 1))
        return metadata.closed(last_entry_id=last_entry_id, length=draw(st.integers(0, 1 << 62)))
    return metadata


@given(metadata_records())
def test_metadata_reads_back_as_it_was_written(metadata: LedgerMetadata) -> None:
    assert decode_ledger_metadata(encode_ledger_metadata(metadata)) == metadata


@given(st.integers(0, (1 << 63) - 1) | st.integers((1 << 31) - 3, (1 << 31) + 3))
def test_ledger_path_leads_back_to_its_id(ledger_id: int) -> None:
    assert ledger_id_of(ledger_path(ledger_id)) == ledger_id


@given(names, names, st.integers(1, 65535), st.none() | st.integers(1, 65535),
       st.dictionaries(names, names, max_size=3))  # fmt: skip
def test_registration_reads_back_as_it_was_written(
    bookie_id: str, host: str, port: int, grpc_port: int | None, properties: dict[str, str]
) -> None:
    info = BookieInfo(bookie_id, host, port, grpc_port, properties)
    assert decode_service_info(bookie_id, encode_service_info(info)) == info


paths = names.filter(lambda name: "\t" not in name)


@given(names, names, st.lists(paths, min_size=1, max_size=3).map(tuple), st.none() | names,
       st.none() | st.lists(paths, min_size=1, max_size=3).map(tuple))  # fmt: skip
def test_cookie_reads_back_as_it_was_written(
    bookie_id: str,
    journal: str,
    ledgers: tuple[str, ...],
    instance_id: str | None,
    indexes: tuple[str, ...] | None,
) -> None:
    cookie = Cookie(bookie_id, journal, ledgers, instance_id, indexes)
    assert Cookie.decode(cookie.encode()) == cookie


@given(st.binary(max_size=60))
def test_quoted_bytes_read_back(value: bytes) -> None:
    assert protobuf_text.unescaped(protobuf_text.quoted(value)) == value
