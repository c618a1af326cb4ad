"""Every example in docs/WIRE.md is encoded and decoded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledgerlog_spark.metadata.ledgers.layout import BY_NAME, style_of
from ledgerlog_spark.model import (
    BookieInfo,
    Code,
    DigestType,
    Fragment,
    LedgerMetadata,
    Quorum,
)
from ledgerlog_spark.wire import answers, requests
from ledgerlog_spark.wire.accepted_loss import AcceptedLoss
from ledgerlog_spark.wire.cookie import Cookie
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.entry import EntryCodec
from ledgerlog_spark.wire.frames import ENTRY_SIZE_BYTES_MAX, FrameSplitter
from ledgerlog_spark.wire.ledger_metadata.record import (
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from ledgerlog_spark.wire.opcodes import Flag, Opcode, code_of
from ledgerlog_spark.wire.registration import (
    OPERATIONS,
    decode_service_info,
    encode_service_info,
)
from ledgerlog_spark.wire.repair_nodes import decode_note, encode_note
from ledgerlog_spark.wire.repair_notes import Hole, HoleKind, Holes
from ledgerlog_spark.wire.slice_requests import SliceReadRequest, encode_read_slices
from ledgerlog_spark.wire.topology import Topology
from ledgerlog_spark.wire.underreplication import MarkData, mark_path
from ledgerlog_spark.wire.version_3 import refusal_of_version_3
from ledgerlog_spark.wire.znodes import HIERARCHICAL, ledger_path
from tests.unit.wire.streams import fed

TEXT = (Path(__file__).parents[3] / "docs" / "WIRE.md").read_text()
BLOCKS = dict(re.findall(r"^```hex (\S+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))
EXAMPLES = {name: bytes.fromhex(re.sub(r"#[^\n]*", "", block)) for name, block in BLOCKS.items()}

KEY = master_key(b"hunter2")
CODEC = EntryCodec(DigestType.CRC32C, b"hunter2")
ENTRIES = [
    b"".join(entry)
    for entry in CODEC.encode_run(
        ledger_id=42, first_entry_id=0, last_add_confirmed=-1, length=0, payloads=[b"one", b"two"]
    )
]
METADATA = LedgerMetadata(
    quorum=Quorum(3, 2, 2),
    fragments=(Fragment(0, ("b-0", "b-1", "b-2")),),
    password=b"hunter2",
    created_ms=1700000000000,
    custom={"app": b"ll"},
    token=7,
)
INFO = BookieInfo("bookie-0", "127.0.0.1", 3181, 4181, {"ledgerlog.ops": ",".join(OPERATIONS)})
SLICED = [(0, [(36, 3)]), (1, [(36, 2)])]


def run_head(entry_ids: Sequence[int]) -> bytes:
    return requests.encode_add_run_head(
        ledger_id=42, request_id=9, entry_ids=entry_ids, lengths=[39, 39], master_key=KEY
    )


VERSION_3_READ = bytes.fromhex("0a070803100118ac02a20604080510009a0600")
ENCODED = {
    "version-3-refusal": refusal_of_version_3(memoryview(VERSION_3_READ)) or b"",
    "master-key": KEY,
    "entry": ENTRIES[0],
    "add": requests.encode_add_head(KEY, 39) + ENTRIES[0],
    "read": requests.encode_read(42, 0),
    "fencing-read": requests.encode_read(42, -1, fence_key=KEY, flags=Flag.HIGH_PRIORITY),
    "batch-read": requests.encode_batch_read(
        42, 0, request_id=9, count_max=100, size_bytes_max=1 << 20
    ),
    "add-run": run_head(range(2)) + b"".join(ENTRIES),
    "add-run-listed": run_head((0, 1)) + b"".join(ENTRIES),
    "tell-lac": requests.encode_tell_lac(42, 1, KEY),
    "read-slices": encode_read_slices(42, SLICED, request_id=9, size_bytes_max=1 << 20),
    "read-slices-answer": b"".join(
        answers.encode_batch_read_answer(
            Code.OK, 42, 0, 9, [b"one", b"tw"], opcode=Opcode.READ_SLICES
        )
    ),
    "add-answer": answers.encode_add_answer(Code.FENCED, 42, 0),
    "add-run-answer": answers.encode_add_run_answer(Code.OK, 42, 0, 9),
    "read-answer": answers.encode_read_answer_head(Code.OK, 42, 0, 39) + ENTRIES[0],
    "batch-read-answer": b"".join(answers.encode_batch_read_answer(Code.OK, 42, 0, 9, ENTRIES[:1])),
    "ledger-metadata": encode_ledger_metadata(METADATA),
    "registration": encode_service_info(INFO),
}
REQUESTS = {
    "add": requests.AddRequest(2, 0, 42, 0, KEY, memoryview(ENTRIES[0])),
    "read": requests.ReadRequest(2, 0, 42, 0, None),
    "fencing-read": requests.ReadRequest(2, 5, 42, -1, KEY),
    "batch-read": requests.BatchReadRequest(2, 0, 42, 0, 9, 100, 1 << 20, None),
    "add-run": requests.AddRunRequest(
        2, 0, 42, 9, range(2), (39, 39), KEY, memoryview(b"".join(ENTRIES))
    ),
    "add-run-listed": requests.AddRunRequest(
        2, 0, 42, 9, (0, 1), (39, 39), KEY, memoryview(b"".join(ENTRIES))
    ),
    "tell-lac": requests.TellLacRequest(2, 0, 42, 1, KEY),
    "read-slices": SliceReadRequest(
        2, 0, 42, 9, 1 << 20, tuple((entry_id, tuple(ranges)) for entry_id, ranges in SLICED)
    ),
}
ANSWERS = {
    "add-answer": answers.AddAnswer(Code.FENCED, 42, 0),
    "add-run-answer": answers.AddRunAnswer(Code.OK, 42, 0, 9),
    "read-answer": answers.ReadAnswer(Code.OK, 42, 0, ENTRIES[0]),
    "batch-read-answer": answers.BatchReadAnswer(Code.OK, 42, 0, 9, (ENTRIES[0],)),
    "read-slices-answer": answers.SliceReadAnswer(Code.OK, 42, 0, 9, (b"one", b"tw")),
}


def test_every_example_of_the_page_is_checked() -> None:
    assert EXAMPLES.keys() == ENCODED.keys()


@pytest.mark.parametrize("name", ENCODED)
def test_example_is_what_the_code_encodes(name: str) -> None:
    assert EXAMPLES[name].hex(" ", 4) == ENCODED[name].hex(" ", 4)


@pytest.mark.parametrize("name", REQUESTS)
def test_example_of_a_request_is_decoded(name: str) -> None:
    (body,) = fed(FrameSplitter(), EXAMPLES[name])
    assert requests.decode_request(body) == REQUESTS[name]


@pytest.mark.parametrize("name", ANSWERS)
def test_example_of_an_answer_is_decoded(name: str) -> None:
    (body,) = fed(FrameSplitter(), EXAMPLES[name])
    assert answers.decode_answer(body) == ANSWERS[name]


def test_examples_of_records_are_decoded() -> None:
    assert decode_ledger_metadata(EXAMPLES["ledger-metadata"]) == METADATA
    assert decode_service_info("bookie-0", EXAMPLES["registration"]) == INFO
    assert CODEC.decode(EXAMPLES["entry"], 42, 0).payload == b"one"


def test_example_of_a_cookie_is_encoded_and_decoded() -> None:
    (text,) = re.findall(r"^```text cookie\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    cookie = Cookie(
        "bookie-0", "/data/bookie-0", ("/data/bookie-0",), "11111111-2222-3333-4444-555555555555"
    )
    assert cookie.encode() == text.encode()
    assert Cookie.decode(text.encode()) == cookie


def test_tables_of_the_page_have_the_numbers_of_the_code() -> None:
    for name, number in re.findall(r"^\| ([A-Z_]+)(?: \(.*?\))? \| (\d+) \|", TEXT, re.MULTILINE):
        assert Opcode[name] == int(number)
    for name, value in re.findall(r"\| \| ([A-Z_]+) \| (\d+) \|$", TEXT, re.MULTILINE):
        assert Flag[name] == int(value)
    codes = dict(re.findall(r"^\| (\d+) \| (\S+)", TEXT, re.MULTILINE))
    assert code_of(104) is Code.FENCED
    assert codes["104"] == "fenced"
    assert f"{ENTRY_SIZE_BYTES_MAX:,}" in TEXT
    assert HIERARCHICAL.encode().decode().split("\n")[1] in TEXT
    for path, ledger_id in (("00/0000/L0042", 42), ("000/0000/0021/4748/L3647", 2147483647)):
        assert f"`{path}`" in TEXT
        assert ledger_path(ledger_id) == "/" + path


def test_the_topology_is_that_of_the_page() -> None:
    (text,) = re.findall(r"^```text topology\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    topology = Topology.decode(text.encode())
    assert topology.bookies["bookie-0"]["rack"] == "r7"
    assert topology.encode() == text.strip().encode()


def test_the_record_of_an_accepted_loss_is_that_of_the_page() -> None:
    (text,) = re.findall(r"^```text accepted_loss\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    loss = AcceptedLoss.decode(text.encode())
    assert loss.entry_ids == (4, 5)
    assert loss.encode() == text.strip().encode()


def test_the_nodes_of_auto_recovery_are_those_of_the_page() -> None:
    (mark,) = re.findall(r"^```text mark\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    expected = MarkData(("10.0.0.1:3181", "10.0.0.2:3181"), 1_764_240_000_000)
    assert expected.encode() == mark.encode()
    assert MarkData.decode(mark.encode()) == expected
    (holes,) = re.findall(r"^```text holes\n(.*?)\n```$", TEXT, re.DOTALL | re.MULTILINE)
    note = Holes.of([Hole("10.0.0.1:3181", 0, HoleKind.MISSING, ((4, 5),))])
    assert encode_note(note) == holes.encode()
    assert decode_note(Holes, holes.encode()) == note
    assert mark_path(42) in f"/underreplication/{_path_of_mark()}"


def _path_of_mark() -> str:
    return re.findall(r"`(ledgers/[0-9a-f/]+/urL[0-9]+)`", TEXT)[0]


def test_the_layouts_are_those_of_the_page() -> None:
    rows = re.findall(r"^\| `zk\+(\w+)` \| `(\w+)` \| `([\w/]+)` \|", TEXT, re.MULTILINE)
    assert {name for name, _, _ in rows} == set(BY_NAME)
    for name, factory, path in rows:
        assert BY_NAME[name].factory == f"org.apache.bookkeeper.meta.{factory}"
        assert ledger_path(42, style_of(BY_NAME[name])) == f"/{path}"
