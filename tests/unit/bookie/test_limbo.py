"""The decisions about doubt and limbo, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.doubt import (
    AddCheck,
    Denial,
    Doubt,
    FoundDirectory,
    check_add,
    cleared_by_creation,
    denial,
    first_cleared_epoch,
    is_in_limbo,
    raises_doubt,
    standing_of,
)
from bookie_server.ports import Standing
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum

CLEAN = FoundDirectory(
    has_manifest=True,
    is_known=True,
    starts=3,
    node_starts=3,
    owes_sync=False,
    is_proved=False,
    has_lost_record=False,
)
MINE = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("b0", "b1", "b2")),))
OTHERS = MINE.with_fragments((*MINE.fragments, Fragment(4, ("b1", "b2", "b3"))))
IN_DOUBT = Doubt(epoch=2, cleared=1, transaction=50)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (CLEAN, False),
        (replace(CLEAN, starts=4), False),
        (replace(CLEAN, starts=2), True),
        (replace(CLEAN, owes_sync=True, is_proved=True), False),
        (replace(CLEAN, owes_sync=True), True),
        (replace(CLEAN, has_lost_record=True), True),
        (replace(CLEAN, has_manifest=False, starts=0, node_starts=0), True),
        (replace(CLEAN, has_manifest=False, is_known=False, starts=0, node_starts=0), False),
    ],
)
def test_a_start_raises_doubt_if_records_may_be_lost(found: FoundDirectory, expected: bool) -> None:
    assert raises_doubt(found) is expected


def test_the_doubt_of_a_new_loss_has_no_transaction() -> None:
    assert IN_DOUBT.raised() == Doubt(epoch=3, cleared=1)


def test_an_older_copy_uses_no_epoch_twice() -> None:
    assert IN_DOUBT.raised(7) == Doubt(epoch=8, cleared=1)
    assert IN_DOUBT.raised(1) == Doubt(epoch=3, cleared=1)


def test_a_transaction_dates_only_the_epoch_after_which_it_began() -> None:
    assert IN_DOUBT.raised().dated(2, 60) == Doubt(epoch=3, cleared=1)
    assert IN_DOUBT.raised().dated(3, 60) == Doubt(epoch=3, cleared=1, transaction=60)


def test_a_repair_begins_after_the_transaction_of_its_epoch() -> None:
    assert IN_DOUBT.may_be_repaired
    assert not IN_DOUBT.raised().may_be_repaired


def test_a_repair_of_an_earlier_epoch_does_not_end_the_doubt() -> None:
    assert not IN_DOUBT.is_over
    assert not IN_DOUBT.raised().ended(2).is_over
    assert IN_DOUBT.ended(2).is_over
    assert IN_DOUBT.ended(1) == IN_DOUBT


def test_a_ledger_is_in_limbo_until_it_is_cleared_up_to_the_epoch() -> None:
    assert is_in_limbo(1, IN_DOUBT)
    assert not is_in_limbo(2, IN_DOUBT)
    assert is_in_limbo(None, IN_DOUBT)
    assert not is_in_limbo(None, IN_DOUBT.ended(2))


def test_a_new_state_is_in_limbo_while_the_doubt_lasts() -> None:
    assert is_in_limbo(first_cleared_epoch(IN_DOUBT), IN_DOUBT)
    over = IN_DOUBT.ended(2)
    assert not is_in_limbo(first_cleared_epoch(over), over)


@pytest.mark.parametrize(
    ("cleared", "doubt", "compared", "expected"),
    [
        (2, IN_DOUBT, 0, Denial.ABSENT),
        (1, IN_DOUBT, 1, Denial.COMPARE),
        (1, IN_DOUBT, 2, Denial.UNKNOWN),
        (None, IN_DOUBT, 0, Denial.COMPARE),
        (None, replace(IN_DOUBT, transaction=0), 0, Denial.UNKNOWN),
        (None, IN_DOUBT.ended(2), 0, Denial.ABSENT),
        (None, Doubt(), 0, Denial.ABSENT),
    ],
)
def test_nothing_is_denied_in_limbo(
    cleared: int | None, doubt: Doubt, compared: int, expected: Denial
) -> None:
    assert denial(cleared, doubt, compared) is expected


def test_only_a_record_that_a_later_transaction_created_is_newer_than_the_loss() -> None:
    assert cleared_by_creation(51, IN_DOUBT) == 2
    assert cleared_by_creation(50, IN_DOUBT) == 0
    assert cleared_by_creation(51, replace(IN_DOUBT, transaction=0)) == 0


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (MINE, AddCheck.TAKE),
        (OTHERS, AddCheck.REFUSE),
        (MINE.in_recovery(), AddCheck.FENCE),
        (OTHERS.closed(last_entry_id=5, length=9), AddCheck.FENCE),
        (None, AddCheck.FENCE),
    ],
)
def test_the_first_add_after_a_loss_needs_an_open_ledger_that_names_the_bookie(
    record: LedgerMetadata | None, expected: AddCheck
) -> None:
    standing = standing_of(record, "b0")
    assert check_add(standing, before=IN_DOUBT, now=IN_DOUBT) is expected


def test_without_an_answer_of_the_store_an_add_is_refused() -> None:
    check = check_add(Standing.UNKNOWN, before=IN_DOUBT, now=IN_DOUBT)
    assert check is AddCheck.REFUSE


def test_an_answer_from_before_a_loss_decides_nothing() -> None:
    check = check_add(Standing.OPEN_WITH_ME, before=IN_DOUBT, now=IN_DOUBT.raised())
    assert check is AddCheck.READ_AGAIN
