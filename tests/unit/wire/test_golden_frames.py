from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.model import Code, DigestType
from ledgerlog_spark.wire import answers, requests
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.entry import EntryCodec
from ledgerlog_spark.wire.frames import FrameSplitter
from ledgerlog_spark.wire.opcodes import VERSION, Flag, Opcode, code_of, number_of
from tests.fixtures.stored_entries import encode_entry
from tests.unit.wire.golden import parametrized, payload_of, records, same_bytes
from tests.unit.wire.streams import fed

ADD_HEAD_SIZE_BYTES = 4 + 4 + 20
"""Length, version and flags, master key."""


def only_body(frame: bytes) -> bytes:
    (body,) = fed(FrameSplitter(), frame)
    return body


def expected_entry(record: dict[str, Any]) -> str:
    """The stored entry. In one vector, it is only the end of the frame, after length and head."""
    return record.get("entry") or record["frame"][2 * ADD_HEAD_SIZE_BYTES :]


@parametrized("master_key")
def test_master_key_of_a_password_is_apaches(record: dict[str, Any]) -> None:
    assert master_key(record["password"].encode()).hex() == record["master_key"]


@parametrized("add")
def test_add_frame_is_encoded_and_decoded_as_apache_does(record: dict[str, Any]) -> None:
    password = record["password"].encode()
    ledger_id, entry_id = int(record["ledger_id"]), int(record["entry_id"])
    payload = payload_of(record)
    codec = EntryCodec(DigestType[record["digest"]], password)
    parts = encode_entry(
        codec,
        ledger_id=ledger_id,
        entry_id=entry_id,
        last_add_confirmed=int(record["last_add_confirmed"]),
        length=int(record["length"]),
        payload=payload,
    )
    entry = b"".join(parts)
    head = requests.encode_add_head(master_key(password), len(entry), int(record["flags"]))
    assert same_bytes(entry, expected_entry(record))
    assert same_bytes(head + entry, record["frame"])

    request = requests.decode_request(only_body(head + entry))
    assert isinstance(request, requests.AddRequest)
    assert request == requests.AddRequest(
        2, int(record["flags"]), ledger_id, entry_id, master_key(password), memoryview(entry)
    )
    decoded = codec.decode(bytes(request.entry), ledger_id, entry_id)
    assert decoded.payload == payload
    assert decoded.last_add_confirmed == int(record["last_add_confirmed"])
    assert decoded.length == int(record["length"])


@parametrized("add")
def test_run_of_one_entry_equals_the_single_entry(record: dict[str, Any]) -> None:
    codec = EntryCodec(DigestType[record["digest"]], record["password"].encode())
    payload = payload_of(record)
    (entry,) = codec.encode_run(
        ledger_id=int(record["ledger_id"]),
        first_entry_id=int(record["entry_id"]),
        last_add_confirmed=int(record["last_add_confirmed"]),
        length=int(record["length"]) - len(payload),
        payloads=[payload],
    )
    assert same_bytes(b"".join(entry), expected_entry(record))


@parametrized("read_request")
def test_read_request_is_encoded_and_decoded_as_apache_does(record: dict[str, Any]) -> None:
    key = bytes.fromhex(record["master_key"]) or None
    ids = int(record["ledger_id"]), int(record["entry_id"])
    flags = int(record["flags"])
    frame = requests.encode_read(*ids, fence_key=key, flags=flags & ~Flag.FENCE)
    assert frame.hex() == record["frame"]
    assert requests.decode_request(only_body(frame)) == requests.ReadRequest(2, flags, *ids, key)


@parametrized("batch_read_request")
def test_batch_read_request_is_encoded_and_decoded_as_apache_does(record: dict[str, Any]) -> None:
    ids = int(record["ledger_id"]), int(record["entry_id"])
    numbers = int(record["request_id"]), int(record["max_count"]), int(record["max_size"])
    frame = requests.encode_batch_read(
        *ids, request_id=numbers[0], count_max=numbers[1], size_bytes_max=numbers[2]
    )
    assert frame.hex() == record["frame"]
    decoded = requests.decode_request(only_body(frame))
    assert decoded == requests.BatchReadRequest(2, int(record["flags"]), *ids, *numbers, None)


@parametrized("add_response")
def test_add_answer_is_encoded_and_decoded_as_apache_does(record: dict[str, Any]) -> None:
    code = code_of(int(record["error_code"]))
    ids = int(record["ledger_id"]), int(record["entry_id"])
    frame = answers.encode_add_answer(code, *ids, version=int(record["version"]))
    assert frame.hex() == record["frame"]
    assert answers.decode_answer(only_body(frame)) == answers.AddAnswer(code, *ids)


@parametrized("read_response")
def test_read_answer_is_encoded_and_decoded_as_apache_does(record: dict[str, Any]) -> None:
    code = code_of(int(record["error_code"]))
    ids = int(record["ledger_id"]), int(record["entry_id"])
    data = bytes.fromhex(record["data"])
    frame = answers.encode_read_answer_head(code, *ids, len(data)) + data
    assert frame.hex() == record["frame"]
    expected = answers.ReadAnswer(code, *ids, data if code is Code.OK else None)
    assert answers.decode_answer(only_body(frame)) == expected


@parametrized("batch_read_response")
def test_batch_read_answer_is_encoded_and_decoded_as_apache_does(record: dict[str, Any]) -> None:
    code = code_of(int(record["error_code"]))
    ids = int(record["ledger_id"]), int(record["entry_id"]), int(record["request_id"])
    entries = tuple(bytes.fromhex(entry) for entry in record["entries"].split())
    frame = b"".join(answers.encode_batch_read_answer(code, *ids, entries))
    assert frame.hex() == record["frame"]
    assert answers.decode_answer(only_body(frame)) == answers.BatchReadAnswer(code, *ids, entries)


APACHE_CODES = {
    "EOK": Code.OK,
    "ENOLEDGER": Code.NO_LEDGER,
    "ENOENTRY": Code.NO_ENTRY,
    "EBADREQ": Code.BAD_REQUEST,
    "EIO": Code.IO_ERROR,
    "EUA": Code.UNAUTHORIZED,
    "EBADVERSION": Code.BAD_VERSION,
    "EFENCED": Code.FENCED,
    "EREADONLY": Code.READ_ONLY,
    "ETOOMANYREQUESTS": Code.BUSY,
    "EUNKNOWNLEDGERSTATE": Code.IO_ERROR,
}
APACHE_NUMBERS = {
    "CURRENT_PROTOCOL_VERSION": VERSION,
    "LOWEST_COMPAT_PROTOCOL_VERSION": 0,
    "INVALID_ENTRY_ID": -1,
    "LAST_ADD_CONFIRMED": -1,
    "MASTER_KEY_LENGTH": len(master_key(b"")),
    "ADDENTRY": Opcode.ADD,
    "READENTRY": Opcode.READ,
    "AUTH": Opcode.AUTH,
    "BATCH_READ_ENTRY": Opcode.BATCH_READ,
    "FLAG_NONE": Flag.NONE,
    "FLAG_DO_FENCING": Flag.FENCE,
    "FLAG_RECOVERY_ADD": Flag.RECOVERY_ADD,
    "FLAG_HIGH_PRIORITY": Flag.HIGH_PRIORITY,
}
NOT_SPOKEN = {"READ_LAC", "WRITE_LAC", "GET_BOOKIE_INFO"}


@parametrized("constant")
def test_constant_has_apaches_value(record: dict[str, Any]) -> None:
    name, value = record["name"], int(record["value"])
    if name in APACHE_CODES:
        assert code_of(value) is APACHE_CODES[name]
    elif name in NOT_SPOKEN:
        assert value not in set(Opcode)
    else:
        assert APACHE_NUMBERS[name] == value


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_a_number_that_reads_back_as_itself_or_as_unknown(code: Code) -> None:
    unknown = {Code.DIGEST_MISMATCH, Code.TIMEOUT, Code.UNAVAILABLE}
    assert code_of(number_of(code)) is (Code.IO_ERROR if code in unknown else code)


def test_unknown_ledger_state_is_never_sent() -> None:
    assert 107 not in {number_of(code) for code in Code}


@pytest.mark.parametrize("number", [-1, 3, 99, 107, 108, 2**31 - 1])
def test_undefined_numbers_prove_nothing(number: int) -> None:
    assert code_of(number) is Code.IO_ERROR


def test_every_golden_record_is_looked_at_by_some_test() -> None:
    looked_at = {
        "master_key", "add", "read_request", "batch_read_request", "add_response",
        "read_response", "batch_read_response", "constant",
        "metadata", "ledger_path", "layout", "bookie_service_info", "cookie",
    }  # fmt: skip
    assert len(records(*looked_at)) == 89
