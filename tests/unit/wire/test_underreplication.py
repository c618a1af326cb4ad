"""The nodes of Apache's auto-recovery, against the nodes that Apache BookKeeper 4.17 wrote.

`apache_underreplication_4_17.json` lists the nodes after Apache's managers marked three ledgers
(one of them twice), took a lock, disabled auto-recovery, stored the delay and the times of the
checks, and were elected.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire import underreplication as ur
from ledgerlog_spark.wire.underreplication import MarkData

GOLDEN: dict[str, bytes] = {
    each["path"]: bytes.fromhex(each["data"])
    for each in json.loads(
        (Path(__file__).parents[2] / "golden" / "apache_underreplication_4_17.json").read_text()
    )
}
MARKS = {
    7: MarkData(("10.0.0.1:3181", "10.0.0.2:3181"), 1_795_799_246_343),
    12_345_678_901: MarkData(("b1", "b2")),
    0x0001_0002_0003_0004: MarkData(('bookie-é"\\',), 1_795_799_246_348),
}


@pytest.mark.parametrize("ledger_id", MARKS)
def test_a_mark_has_apaches_path_and_bytes(ledger_id: int) -> None:
    data = GOLDEN[ur.mark_path(ledger_id)]
    assert MARKS[ledger_id].encode() == data
    assert MarkData.decode(data) == MARKS[ledger_id]
    assert ur.mark_directory(ledger_id) in GOLDEN


def test_locks_and_votes_have_apaches_bytes() -> None:
    assert ur.decode_holder(GOLDEN[ur.lock_path(7)]) == "localhost"
    assert ur.encode_holder("localhost") == GOLDEN[ur.lock_path(7)]
    vote = f"{ur.ELECTION}/{ur.VOTE_PREFIX}0000000000"
    assert ur.encode_holder("10.0.0.9:3181") == GOLDEN[vote] == GOLDEN[ur.ELECTION]
    assert ur.vote_number("V_0000000000") == 0


def test_the_settings_have_apaches_bytes() -> None:
    assert GOLDEN[ur.LAYOUT] == ur.LAYOUT_DATA
    ur.check_layout(GOLDEN[ur.LAYOUT])
    assert ur.DISABLED in GOLDEN
    assert ur.encode_delay(17) == GOLDEN[ur.LOST_BOOKIE_DELAY]
    assert ur.decode_delay(GOLDEN[ur.LOST_BOOKIE_DELAY]) == 17


@pytest.mark.parametrize(
    ("name", "time_ms"),
    [
        ("checkallledgersctime", 1_764_240_000_000),
        ("placementpolicycheckctime", 1_764_240_000_001),
        ("replicascheckctime", 0),
    ],
)
def test_the_times_of_checks_have_apaches_bytes(name: str, time_ms: int) -> None:
    data = GOLDEN[f"{ur.UNDERREPLICATION}/{name}"]
    assert ur.encode_time(time_ms) == data
    assert ur.decode_time(data) == time_ms


def test_every_node_that_apache_wrote_has_a_name_here() -> None:
    """A new kind of node in another version of Apache's would fail here."""
    own = {ur.UNDERREPLICATION, ur.LAYOUT, ur.MARKS, ur.LOCKS, ur.ELECTION, ur.DISABLED}
    own |= {ur.LOST_BOOKIE_DELAY, ur.lock_path(7), f"{ur.ELECTION}/V_0000000000"}
    times = ("checkallledgersctime", "placementpolicycheckctime", "replicascheckctime")
    own |= {f"{ur.UNDERREPLICATION}/{name}" for name in times}
    for ledger_id in MARKS:
        path = ur.mark_path(ledger_id)
        while path != ur.MARKS:
            own.add(path)
            path = path.rpartition("/")[0]
    assert own == set(GOLDEN)


@pytest.mark.parametrize(
    ("ledger_id", "name"),
    [(0, "urL0000000000"), (7, "urL0000000007"), (12_345_678_901, "urL12345678901")],
)
def test_a_lock_has_apaches_path(ledger_id: int, name: str) -> None:
    assert ur.lock_path(ledger_id) == f"/underreplication/locks/{name}"


@pytest.mark.parametrize("ledger_id", [-1, 1 << 63])
def test_an_id_that_no_ledger_has_is_refused(ledger_id: int) -> None:
    for path in (ur.lock_path, ur.mark_path, ur.mark_directory):
        with pytest.raises(WireFormatError, match="is not between 0"):
            path(ledger_id)


def test_the_directories_of_a_mark_are_its_ledger_id() -> None:
    path = ur.mark_directory(0x0123_4567_89AB_CDEF)
    names = path.removeprefix(ur.MARKS + "/").split("/")
    assert names == ["0123", "4567", "89ab", "cdef"]
    assert ur.ledger_of_levels(names) == 0x0123_4567_89AB_CDEF


def test_a_merged_mark_keeps_its_first_bookies_when_it_is_full() -> None:
    full = MarkData(tuple(f"b{index}" for index in range(ur.REPLICAS_MAX)), 1)
    merged = full.merged(["late"], 2)
    assert merged == MarkData(full.replicas, 2)
    assert MarkData.decode(merged.encode()) == merged


@pytest.mark.parametrize(
    "data",
    [
        b"replica",
        b"replica: b1",
        b"replica: 1",
        b"ctime: soon",
        b'ctime: "5"',
        b"later: 1",
        b"later { }",
        b'replica: "\\377"',
        b'replica: "' + b"b" * 301 + b'"',
        b"".join(b'replica: "b%d"\n' % index for index in range(1_001)),
        b"#" * 300_000,
    ],
)
def test_another_mark_is_refused(data: bytes) -> None:
    with pytest.raises(WireFormatError):
        MarkData.decode(data)


@pytest.mark.parametrize("data", [b"", b'type: "BASIC"', b'type: "BASIC"\nversion: 1\nmore: 1'])
def test_another_layout_is_refused(data: bytes) -> None:
    with pytest.raises(WireFormatError, match="this release reads only"):
        ur.check_layout(data)


def test_a_holder_has_one_known_field() -> None:
    assert ur.decode_holder(b"") == ""
    for data in (b'bookie: "b"', b"bookieId: 5", b"bookieId { }"):
        with pytest.raises(WireFormatError):
            ur.decode_holder(data)
