"""The repair of one ledger, and of all ledgers, effect by effect."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookie_server.core import repair as r
from bookie_server.core.doubt import Doubt
from ledgerlog_spark.model import (
    Code,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Version,
    Versioned,
)

DOUBT = Doubt(epoch=2, cleared=1, transaction=50)
QUORUM = Quorum(3, 3, 2)
OPEN = LedgerMetadata(QUORUM, (Fragment(0, ("b0", "b1", "b2")),))
CLOSED = OPEN.closed(last_entry_id=1, length=9)
LEFT = OPEN.with_fragments((*OPEN.fragments, Fragment(2, ("b3", "b1", "b2"))))
LIMITS = r.RecoveryLimits(idle_ms=100, stuck_ms=50)


def loaded(metadata: LedgerMetadata, number: int = 3) -> r.RecordLoaded:
    return r.RecordLoaded(is_read=True, record=Versioned(metadata, Version(1, number)))


def played(
    events: Sequence[r.RepairEvent], *, has_state: bool = True
) -> tuple[list[r.RepairEffect], r.LedgerRepair]:
    """Return the effects of b0's repair after each event."""
    machine = r.LedgerRepair("b0", DOUBT, has_state=has_state)
    effects = machine.begin()
    for event in events:
        effects += machine.handle(event)
    return effects, machine


def test_a_closed_ledger_is_cleared_when_its_entries_are_back() -> None:
    effects, _ = played(
        [
            loaded(CLOSED),
            r.HeldVerified(frozenset({1})),
            r.EntryFetched(Code.TIMEOUT),
            r.EntryFetched(Code.OK, b"entry 0"),
            r.EntryStored(is_stored=True),
            loaded(CLOSED),
            r.LedgerCleared(),
        ]
    )
    assert effects == [
        r.LoadRecord(),
        r.VerifyHeld((0, 1)),
        r.FetchEntry("b1", 0),
        r.FetchEntry("b2", 0),
        r.StoreEntry(0, b"entry 0"),
        r.LoadRecord(),
        r.ClearLedger(2, 1),
        r.RepairEnded(r.RepairOutcome.CLEARED),
    ]


def test_a_record_that_changed_meanwhile_is_repaired_again() -> None:
    grown = LEFT.closed(last_entry_id=5, length=9)
    effects, _ = played([loaded(CLOSED), r.HeldVerified(frozenset({0, 1})), loaded(grown, 4)])
    assert effects[-2:] == [r.LoadRecord(), r.VerifyHeld((0, 1))]


def test_a_record_that_changes_all_the_time_is_left_for_later() -> None:
    events: list[r.RepairEvent] = [loaded(CLOSED, 0)]
    for number in range(r.RECORD_CHANGES_MAX + 1):
        events += [r.HeldVerified(frozenset({0, 1})), loaded(CLOSED, number + 1)]
    effects, _ = played(events)
    assert effects[-1] == r.RepairEnded(r.RepairOutcome.INCOMPLETE)


def test_an_open_ledger_that_names_the_bookie_stays_in_limbo() -> None:
    effects, _ = played(
        [
            loaded(OPEN),
            r.PeerLacRead(Code.OK, 0),
            r.PeerLacRead(Code.IO_ERROR),
            r.HeldVerified(frozenset({0})),
            loaded(OPEN),
        ]
    )
    record = Versioned(OPEN, Version(1, 3))
    assert effects[1:4] == [r.ReadPeerLac("b1"), r.ReadPeerLac("b2"), r.VerifyHeld((0,))]
    assert effects[-1] == r.RepairEnded(r.RepairOutcome.WAITING, record=record, silent_peers=1)


def test_an_open_ledger_whose_last_fragment_names_others_is_cleared() -> None:
    effects, _ = played([loaded(LEFT), r.HeldVerified(frozenset({0, 1})), loaded(LEFT)])
    assert effects[1] == r.VerifyHeld((0, 1))
    assert effects[-1] == r.ClearLedger(2, 1)


@pytest.mark.parametrize("metadata", [OPEN, LEFT])
def test_a_ledger_in_recovery_stays_in_limbo_whoever_it_names(metadata: LedgerMetadata) -> None:
    record = metadata.in_recovery()
    effects, _ = played([loaded(record), r.HeldVerified(frozenset({0, 1})), loaded(record)])
    ended = effects[-1]
    assert isinstance(ended, r.RepairEnded)
    assert ended.outcome is r.RepairOutcome.WAITING


def test_a_ledger_that_owes_nothing_needs_no_state() -> None:
    others = OPEN.with_fragments((Fragment(0, ("b1", "b2", "b3")),))
    effects, _ = played([loaded(others)], has_state=False)
    assert effects[1:] == [r.RepairEnded(r.RepairOutcome.CLEARED)]


def test_an_entry_that_all_others_deny_needs_an_operator() -> None:
    effects, _ = played(
        [
            loaded(CLOSED),
            r.HeldVerified(frozenset({1})),
            r.EntryFetched(Code.NO_ENTRY),
            r.EntryFetched(Code.NO_LEDGER),
            loaded(CLOSED),
        ]
    )
    record = Versioned(CLOSED, Version(1, 3))
    assert effects[-1] == r.RepairEnded(r.RepairOutcome.NEEDS_OPERATOR, (0,), 1, record)


@pytest.mark.parametrize("code", [Code.IO_ERROR, Code.UNAVAILABLE, Code.DIGEST_MISMATCH])
def test_a_bookie_that_denies_nothing_is_asked_again_later(code: Code) -> None:
    effects, _ = played(
        [
            loaded(CLOSED),
            r.HeldVerified(frozenset({1})),
            r.EntryFetched(Code.NO_ENTRY),
            r.EntryFetched(code),
            loaded(CLOSED),
        ]
    )
    ended = effects[-1]
    assert isinstance(ended, r.RepairEnded)
    assert ended.outcome is r.RepairOutcome.INCOMPLETE
    assert ended.missing == (0,)


def test_a_copy_that_could_not_be_stored_is_fetched_again_later() -> None:
    effects, _ = played(
        [
            loaded(CLOSED),
            r.HeldVerified(frozenset({1})),
            r.EntryFetched(Code.OK, b"entry 0"),
            r.EntryStored(is_stored=False),
            loaded(CLOSED),
        ]
    )
    ended = effects[-1]
    assert isinstance(ended, r.RepairEnded)
    assert ended.outcome is r.RepairOutcome.INCOMPLETE


def test_without_the_store_nothing_is_decided() -> None:
    effects, _ = played([r.RecordLoaded(is_read=False)])
    assert effects[-1] == r.RepairEnded(r.RepairOutcome.INCOMPLETE)


def test_a_ledger_that_does_not_exist_is_deleted() -> None:
    effects, _ = played([r.RecordLoaded(is_read=True)])
    assert effects[-1] == r.RepairEnded(r.RepairOutcome.DELETED)


def test_a_bookie_owes_its_stripe_of_each_fragment_up_to_the_end() -> None:
    striped = LedgerMetadata(
        Quorum(3, 2, 2),
        (
            Fragment(0, ("b0", "b1", "b2")),
            Fragment(4, ("b1", "b2", "b3")),
            Fragment(6, ("b1", "b0", "b3")),
            Fragment(20, ("b0", "b1", "b2")),
        ),
        state=LedgerState.CLOSED,
        last_entry_id=9,
    )
    owed = [list(r.owed_of(*each, striped.quorum, "b0")) for each in r.ends_of(striped)]
    assert owed == [[0, 2, 3], [], [6, 7, 9], []]


def ended(metadata: LedgerMetadata, silent: int = 0) -> r.RepairEnded:
    record = Versioned(metadata, Version(1, 3))
    return r.RepairEnded(r.RepairOutcome.WAITING, record=record, silent_peers=silent)


@pytest.mark.parametrize(
    ("repair", "quiet_ms", "expected"),
    [
        (ended(OPEN), 100, True),
        (ended(OPEN), 99, False),
        (ended(OPEN, silent=1), 1_000, False),
        (ended(OPEN.in_recovery()), 50, True),
        (ended(OPEN.in_recovery()), 49, False),
        (r.RepairEnded(r.RepairOutcome.INCOMPLETE), 1_000, False),
    ],
)
def test_a_bookie_recovers_a_quiet_ledger_that_it_can_close(
    repair: r.RepairEnded, quiet_ms: int, expected: bool
) -> None:
    assert r.should_recover(repair, quiet_ms, LIMITS) is expected


def test_a_pass_ends_the_doubt_when_each_ledger_is_cleared_or_has_a_state() -> None:
    whole = r.RepairPass(DOUBT)
    assert whole.begin() == r.ListLedgers()
    assert whole.listed([7, 8, 9], is_whole=True) == r.RepairLedger(7)
    assert whole.repaired(7, r.RepairOutcome.CLEARED) == r.RepairLedger(8)
    assert whole.repaired(8, r.RepairOutcome.WAITING) == r.KeepInLimbo(8)
    assert whole.handled() == r.RepairLedger(9)
    assert whole.repaired(9, r.RepairOutcome.DELETED) == r.EndDoubt(2)
    assert whole.ended() == r.PassEnded(is_whole=True)


def test_a_pass_with_a_part_of_the_ledgers_ends_no_doubt() -> None:
    part = r.RepairPass(DOUBT)
    assert part.listed([7], is_whole=False) == r.PassEnded(is_whole=False)


def test_a_large_ledger_is_verified_and_fetched_in_stretches() -> None:
    last = r.STRETCH_ENTRIES_MAX + 1
    large = OPEN.closed(last_entry_id=last, length=9)
    first = range(r.STRETCH_ENTRIES_MAX)
    effects, _ = played(
        [
            loaded(large),
            r.HeldVerified(frozenset(first) - {3, 4, 7}),
            r.EntryFetched(Code.OK, b"3"),
            r.EntryStored(is_stored=True),
            r.EntryFetched(Code.OK, b"4"),
            r.EntryStored(is_stored=True),
            r.EntryFetched(Code.OK, b"7"),
            r.EntryStored(is_stored=True),
            r.HeldVerified(frozenset({last - 1, last})),
            loaded(large),
        ]
    )
    fetched = [one for one in effects if isinstance(one, r.FetchEntry)]
    assert [(one.entry_id, one.count) for one in fetched] == [(3, 2), (4, 1), (7, 1)]
    assert effects[1] == r.VerifyHeld(tuple(first))
    assert effects[-3] == r.VerifyHeld((last - 1, last))
    assert effects[-1] == r.ClearLedger(2, last)


def test_a_ledger_that_got_its_state_by_the_repair_is_cleared() -> None:
    effects, _ = played(
        [
            loaded(CLOSED),
            r.HeldVerified(frozenset({1})),
            r.EntryFetched(Code.OK, b"entry 0"),
            r.EntryStored(is_stored=True),
            loaded(CLOSED),
        ],
        has_state=False,
    )
    assert effects[-1] == r.ClearLedger(2, 1)


def test_the_ids_of_few_missing_entries_are_kept() -> None:
    many = OPEN.closed(last_entry_id=r.MISSING_MAX, length=9)
    denials = [r.EntryFetched(Code.NO_ENTRY)] * (2 * r.MISSING_MAX + 2)
    effects, _ = played([loaded(many), r.HeldVerified(frozenset()), *denials, loaded(many)])
    ended = effects[-1]
    assert isinstance(ended, r.RepairEnded)
    assert ended.missing == tuple(range(r.MISSING_MAX))
    assert ended.missing_count == r.MISSING_MAX + 1
