"""The reader of the long checks detects each kind of wrong copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.model import Code, DigestType, Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.wire.answers import ReadAnswer
from ledgerlog_spark.wire.entry import EntryCodec
from tests.fixtures import replicas
from tests.fixtures.replicas import BROKEN_MAX, Copies, stored_on
from tests.fixtures.stored_entries import encode_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEDGER = 7
METADATA = LedgerMetadata(
    Quorum(3, 3, 2),
    (Fragment(0, ("b1", "b2", "b3")), Fragment(4, ("b1", "b2", "b4"))),
    LedgerState.CLOSED,
    last_entry_id=5,
)
BOOKIES: dict[str, Any] = {name: name for name in ("b1", "b2", "b3", "b4")}


def payload_of(entry_id: int) -> bytes:
    return b"entry %d" % entry_id


def stored(entry_id: int, payload: bytes) -> bytes:
    pieces = encode_entry(
        EntryCodec(DigestType.CRC32C),
        ledger_id=LEDGER,
        entry_id=entry_id,
        last_add_confirmed=entry_id - 1,
        length=1_000,
        payload=payload,
    )
    return b"".join(pieces)


class Held:
    """The answers of each bookie."""

    def __init__(self) -> None:
        self.answers = {
            (name, entry_id): (Code.OK, stored(entry_id, payload_of(entry_id)))
            for name, entry_ids in stored_on(METADATA)
            for entry_id in entry_ids
        }

    def read(self, name: str, _ledger_id: int, entry_ids: Sequence[int]) -> Iterator[ReadAnswer]:
        for entry_id in entry_ids:
            code, entry = self.answers[name, entry_id]
            yield ReadAnswer(code, LEDGER, entry_id, entry if code is Code.OK else None)

    def found(self, *, knows_payloads: bool = True) -> Copies:
        copies = Copies()
        copies.check(LEDGER, METADATA, BOOKIES, payload_of if knows_payloads else None)
        return copies


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held()
    monkeypatch.setattr(replicas, "answers", held.read)
    return held


@pytest.mark.parametrize("knows_payloads", [True, False])
def test_each_copy_of_each_fragment_is_read(held: Held, *, knows_payloads: bool) -> None:
    assert held.found(knows_payloads=knows_payloads) == Copies(entries=6, read=18)
    assert {key for key in held.answers if key[0] in ("b3", "b4")} == {
        *(("b3", entry_id) for entry_id in range(4)),
        *(("b4", entry_id) for entry_id in (4, 5)),
    }


def test_as_many_copies_as_the_ack_quorum_are_enough_and_fewer_are_not(held: Held) -> None:
    held.answers["b1", 2] = Code.NO_ENTRY, b""
    assert held.found() == Copies(entries=6, read=17, absent=1)
    held.answers["b3", 2] = Code.NO_LEDGER, b""
    found = held.found()
    assert (found.read, found.absent, found.wrong) == (16, 2, 1)
    assert found.broken == [f"entry 2 of ledger {LEDGER}: 1 copies"]


@pytest.mark.parametrize("knows_payloads", [True, False])
def test_valid_entry_with_other_bytes_is_wrong(held: Held, *, knows_payloads: bool) -> None:
    held.answers["b2", 5] = Code.OK, stored(5, b"other")
    found = held.found(knows_payloads=knows_payloads)
    assert (found.read, found.wrong) == (17, 1)


def test_damaged_entry_and_an_answer_that_is_not_definite_are_wrong(held: Held) -> None:
    damaged = bytearray(stored(1, payload_of(1)))
    damaged[-1] ^= 1
    held.answers["b1", 1] = Code.OK, bytes(damaged)
    held.answers["b4", 4] = Code.IO_ERROR, b""
    found = held.found()
    assert (found.read, found.absent, found.wrong) == (16, 0, 2)


def test_number_of_sentences_is_bounded(held: Held) -> None:
    copies = Copies()
    held.answers = dict.fromkeys(held.answers, (Code.IO_ERROR, b""))
    for _ in range(BROKEN_MAX):
        copies.check(LEDGER, METADATA, BOOKIES, payload_of)
    assert len(copies.broken) == BROKEN_MAX
    assert copies.wrong == BROKEN_MAX * (18 + 6)
