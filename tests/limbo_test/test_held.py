"""The reader of limbo-test detects each kind of wrong answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.model import Code, DigestType, Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.wire.answers import ReadAnswer
from ledgerlog_spark.wire.entry import EntryCodec
from tests.fixtures.stored_entries import encode_entry
from tests.kill_test.payload import payload
from tests.limbo_test import held
from tests.limbo_test.held import Held, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEDGER = 7
METADATA = LedgerMetadata(
    Quorum(3, 3, 2), (Fragment(0, ("b1", "b2", "b3")),), LedgerState.CLOSED, last_entry_id=3
)


def stored(entry_id: int, content: bytes) -> bytes:
    pieces = encode_entry(
        EntryCodec(DigestType.CRC32C),
        ledger_id=LEDGER,
        entry_id=entry_id,
        last_add_confirmed=entry_id - 1,
        length=100_000,
        payload=content,
    )
    return b"".join(pieces)


class Client:
    """The metadata of one ledger."""

    def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        assert ledger_id == LEDGER
        return METADATA


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[Code, bytes | None]]:
    """The answers of a bookie by entry, which tests change."""
    given: dict[int, tuple[Code, bytes | None]] = {
        entry_id: (Code.OK, stored(entry_id, payload(LEDGER, entry_id))) for entry_id in range(4)
    }

    def read(_bookie: Any, ledger_id: int, entry_ids: Sequence[int]) -> Iterator[ReadAnswer]:
        for entry_id in entry_ids:
            code, entry = given[entry_id]
            yield ReadAnswer(code, ledger_id, entry_id, entry)

    monkeypatch.setattr(held, "answers", read)
    return given


def test_only_what_the_bookie_had_is_asked_for(
    answers: dict[int, tuple[Code, bytes | None]],
) -> None:
    answers[1] = (Code.NO_ENTRY, None)
    before = Held("b2", object())  # type: ignore[arg-type]
    before.take(Client(), [LEDGER])  # type: ignore[arg-type]
    assert before.entries == {LEDGER: [0, 2, 3]}
    assert before.look() == Seen(intact=3)


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ((Code.NO_ENTRY, None), "absent"),
        ((Code.NO_LEDGER, None), "absent"),
        ((Code.IO_ERROR, None), "unknown"),
        ((Code.OK, stored(2, b"other bytes")), "wrong"),
        ((Code.OK, stored(1, payload(LEDGER, 1))), "wrong"),
        ((Code.OK, b"no entry"), "wrong"),
    ],
)
def test_a_wrong_answer_is_counted(
    answers: dict[int, tuple[Code, bytes | None]], answer: tuple[Code, bytes | None], name: str
) -> None:
    before = Held("b2", object())  # type: ignore[arg-type]
    before.take(Client(), [LEDGER])  # type: ignore[arg-type]
    assert before.look().is_whole
    answers[2] = answer
    seen = before.look()
    assert not seen.is_whole
    assert (seen.intact, getattr(seen, name)) == (3, 1)
