"""The notes of auto-recovery: their bounds, and which bytes a reader refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.repair_nodes import (
    ITEMS_MAX,
    SIZE_BYTES_MAX,
    TEXT_MAX,
    decode_note,
    encode_note,
)
from ledgerlog_spark.wire.repair_notes import (
    HOLES_MAX,
    MOVES_MAX,
    RANGES_MAX,
    WHOLE_LEDGER,
    BlockedLedger,
    FailedAttempts,
    Hole,
    HoleKind,
    Holes,
    Move,
    MoveReason,
    Moves,
    Unreadable,
    UnreadableRange,
    Vacation,
    VacationKind,
    VacationPhase,
    WorkerReport,
    WorkerTask,
)
from tests.fixtures.examples import examples

NOTES: list[Any] = [
    Holes.of([Hole("b1"), Hole("b2", 5, HoleKind.DAMAGED, ((1, 2), (7, 7)))]),
    Moves.of([Move("b1", 5, MoveReason.PLACEMENT)]),
    Unreadable((UnreadableRange(1, 2, False, (("b1", "timeout"), ("b2", "no_entry"))),), "w", 7),
    FailedAttempts(2, "no_spare", "text", "w", 7, 5_000),
    WorkerReport((WorkerTask(7, "mark", 1, 2, 3),), 1, 2, 3, 4, 5, "working", 6),
    Vacation(VacationKind.RECOVER, VacationPhase.VACATING, blocked=(BlockedLedger(7, "no_spare"),)),
]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_note_reads_back_whole(note: Any) -> None:
    assert decode_note(type(note), encode_note(note)) == note


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_any_other_value_of_a_field_is_refused(note: Any) -> None:
    values = json.loads(encode_note(note))
    for name in values:
        for other in (None, 1.5, True, [None], {"x": 1}, -2, 1 << 63, "x" * (TEXT_MAX + 1)):
            with pytest.raises(WireFormatError):
                decode_note(type(note), json.dumps({**values, name: other}).encode())
        rest = {key: value for key, value in values.items() if key != name}
        with pytest.raises(WireFormatError):
            decode_note(type(note), json.dumps(rest).encode())
    with pytest.raises(WireFormatError):
        decode_note(type(note), json.dumps({**values, "later": 1}).encode())


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireFormatError):
        decode_note(Holes, data)


def test_a_note_of_a_later_release_names_its_format() -> None:
    values = json.loads(encode_note(NOTES[0]))
    with pytest.raises(WireFormatError, match="use a newer release") as refused:
        decode_note(Holes, json.dumps({**values, "format": 2}).encode())
    assert refused.value.format == 2


def test_the_size_of_a_note_is_bounded() -> None:
    long = Unreadable(
        tuple(
            UnreadableRange(index, index, True, tuple((f"b{n}", "x" * 90) for n in range(9)))
            for index in range(ITEMS_MAX)
        )
    )
    with pytest.raises(WireFormatError, match="more than"):
        encode_note(long)
    with pytest.raises(WireFormatError, match="more than"):
        decode_note(Holes, b" " * (SIZE_BYTES_MAX + 1))


def test_long_texts_are_cut_when_they_are_written() -> None:
    note = FailedAttempts(1, "refused", "x" * 5_000)
    assert len(decode_note(FailedAttempts, encode_note(note)).detail) == TEXT_MAX


# The union of holes and of moves.

EntryRanges = st.lists(
    st.integers(0, 60).flatmap(lambda first: st.tuples(st.just(first), st.integers(first, 70))),
    max_size=6,
).map(tuple)
SomeHoles = st.lists(
    st.builds(
        Hole,
        st.sampled_from(["b1", "b2"]),
        st.sampled_from([0, 50]),
        st.sampled_from(HoleKind),
        EntryRanges,
    ),
    max_size=6,
)


def asked(holes: tuple[Hole, ...]) -> set[tuple[str, int, str, int]]:
    """The entries that holes ask for. A hole without ranges asks for the whole fragment."""
    return {
        (hole.bookie_id, hole.first_entry_id, hole.kind, entry_id)
        for hole in holes
        for first, last in hole.ranges or ((0, 99),)
        for entry_id in range(first, last + 1)
    }


@settings(max_examples=examples(50))
@given(SomeHoles, SomeHoles)
def test_a_union_of_holes_asks_for_exactly_their_entries(
    one: list[Hole], other: list[Hole]
) -> None:
    merged = Holes.of(one).merged(Holes.of(other))
    assert asked(merged.holes) == asked((*one, *other))
    assert merged == Holes.of(other).merged(Holes.of(one))
    assert merged.merged(merged) == merged
    keys = [(hole.bookie_id, hole.first_entry_id, hole.kind) for hole in merged.holes]
    assert len(set(keys)) == len(keys)


def test_too_many_ranges_are_the_whole_fragment() -> None:
    ranges = tuple((2 * index, 2 * index) for index in range(RANGES_MAX + 1))
    assert Holes.of([Hole("b1", 0, HoleKind.MISSING, ranges[1:])]).holes[0].ranges == ranges[1:]
    assert Holes.of([Hole("b1", 0, HoleKind.MISSING, ranges)]) == Holes((Hole("b1", 0),))


def test_too_many_holes_are_holes_of_every_member() -> None:
    holes = [Hole("b1", index) for index in range(HOLES_MAX)]
    assert len(Holes.of(holes).holes) == HOLES_MAX
    more = Holes.of([*holes, Hole("b2", 0, HoleKind.DAMAGED)])
    assert more == Holes(
        (Hole("", WHOLE_LEDGER, HoleKind.DAMAGED), Hole("", WHOLE_LEDGER, HoleKind.MISSING))
    )
    assert decode_note(Holes, encode_note(Holes.of(holes))) == Holes.of(holes)


def test_too_many_moves_are_moves_of_whole_ledgers() -> None:
    moves = [Move("b1", index) for index in range(MOVES_MAX)]
    assert len(Moves.of(moves).moves) == MOVES_MAX
    more = Moves.of(moves).merged(Moves.of([Move("b2", 5)]))
    assert more == Moves((Move("b1"), Move("b2")))
    many = Moves.of([Move(f"b{index:04d}") for index in range(MOVES_MAX + 5)])
    assert len(many.moves) == MOVES_MAX


@pytest.mark.parametrize("kind", [FailedAttempts, Unreadable])
def test_the_newer_note_of_these_kinds_counts(kind: type[Any]) -> None:
    older, newer = (FailedAttempts(1, "a"), FailedAttempts(2, "b"))
    if kind is Unreadable:
        older, newer = (Unreadable((), "a"), Unreadable((), "b"))  # type: ignore[assignment]
    assert older.merged(newer) == newer
