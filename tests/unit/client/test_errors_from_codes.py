from __future__ import annotations

import pickle

import pytest

from ledgerlog_spark import errors
from ledgerlog_spark.client.errors_from_codes import (
    FAILURES,
    OUTCOMES,
    error_for_unsent,
    error_from_failure,
    error_from_read,
    outcome_of,
)
from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger.messages import (
    Failure,
    LedgerFailed,
    MetadataOutcome,
    ReadFailed,
)


def test_every_failure_of_a_machine_has_an_exception() -> None:
    assert set(FAILURES) == set(Failure)


def test_every_metadata_outcome_but_success_has_an_exception() -> None:
    of_bookie = errors.MetadataVersionError("its cookie was re-written", bookie_id="b1")
    assert outcome_of(of_bookie) is MetadataOutcome.BOOKIE_CHANGED
    others = set(MetadataOutcome) - {MetadataOutcome.OK, MetadataOutcome.BOOKIE_CHANGED}
    assert set(OUTCOMES.values()) == others
    assert outcome_of(errors.InternalError("ours")) is None


@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("is_definite", [False, True])
def test_an_error_carries_what_the_machine_says(failure: Failure, is_definite: bool) -> None:
    failed = LedgerFailed(failure, is_definite, last_add_confirmed=4, is_retriable=True)
    error = error_from_failure(9, failed)
    assert (error.definite, error.retriable) == (is_definite, True)
    assert (error.ledger_id, error.last_add_confirmed) == (9, 4)
    assert failure.value in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.fields) == (type(error), str(error), error.fields)


def test_too_few_bookies_names_both_numbers() -> None:
    failed = LedgerFailed(Failure.NOT_ENOUGH_BOOKIES, is_definite=False, wanted=3, available=1)
    error = error_from_failure(9, failed)
    assert isinstance(error, errors.NotEnoughBookiesError)
    assert (error.wanted, error.available) == (3, 1)
    assert "needed 3, found 1" in str(error)


def test_a_failed_write_names_what_the_bookies_said() -> None:
    codes = tuple((f"bookie-{number}", Code.READ_ONLY) for number in range(9))
    failed = LedgerFailed(Failure.NOT_ENOUGH_BOOKIES, is_definite=False, codes=codes)
    error = error_from_failure(9, failed)
    assert error.fields["codes"] == {f"bookie-{number}": "read_only" for number in range(9)}
    assert "(..., bookie-2: read_only, bookie-3: read_only," in str(error)
    assert "bookie-8: read_only)" in str(error)
    seven = LedgerFailed(Failure.NOT_ENOUGH_BOOKIES, is_definite=False, codes=codes[:7])
    assert "(bookie-0: read_only," in str(error_from_failure(9, seven))
    assert "..." not in str(error_from_failure(9, seven))
    busy = LedgerFailed(Failure.OVERLOADED, is_definite=False, bookie_ids=("bookie-3",))
    assert "too many requests (bookie-3: busy)" in str(error_from_failure(9, busy))
    fenced = LedgerFailed(Failure.FENCED, is_definite=False, codes=codes)
    assert "bookie" not in str(error_from_failure(9, fenced))


def test_a_failed_read_names_what_each_bookie_said() -> None:
    codes = (("bookie-0", Code.TIMEOUT), ("bookie-1", Code.NO_ENTRY), ("bookie-2", None))
    error = error_from_read(9, ReadFailed(Failure.ENTRY_UNKNOWN, 3, codes))
    assert isinstance(error, errors.EntryUnknownError)
    assert error.retriable
    assert error.codes == {"bookie-0": "timeout", "bookie-1": "no_entry", "bookie-2": "no answer"}
    assert "bookie-0: timeout" in str(error)


def test_an_append_after_the_failure_is_definitely_not_there() -> None:
    failed = LedgerFailed(Failure.FENCED, is_definite=False, first_unknown_entry_id=3)
    assert not error_from_failure(9, failed).definite
    error = error_for_unsent(9, failed)
    assert isinstance(error, errors.LedgerFencedError)
    assert error.definite
    assert "nothing was sent" in str(error)


def test_an_append_after_the_failure_names_what_the_bookies_said() -> None:
    failed = LedgerFailed(
        Failure.NOT_ENOUGH_BOOKIES,
        is_definite=False,
        bookie_ids=("bookie-1",),
        wanted=3,
        available=2,
        codes=(("bookie-1", Code.TIMEOUT),),
    )
    error = error_for_unsent(9, failed)
    assert str(error).startswith(
        "nothing was sent: ledger 9: too few bookies (needed 3, found 2) (bookie-1: timeout); start"
    )
    assert (error.codes, error.bookie_ids) == ({"bookie-1": "timeout"}, ("bookie-1",))
    assert (error.wanted, error.available) == (3, 2)
    busy = LedgerFailed(Failure.OVERLOADED, is_definite=False, bookie_ids=("bookie-3",))
    assert error_for_unsent(9, busy).codes == {"bookie-3": "busy"}


@pytest.mark.parametrize("failure", Failure)
def test_an_append_after_the_failure_carries_what_pending_ones_do(failure: Failure) -> None:
    failed = LedgerFailed(
        failure,
        is_definite=False,
        last_add_confirmed=4,
        bookie_ids=("bookie-1",),
        wanted=3,
        available=2,
        codes=(("bookie-1", Code.TIMEOUT),),
    )
    pending, unsent = error_from_failure(9, failed), error_for_unsent(9, failed)
    assert type(unsent) is type(pending)
    assert unsent.fields == pending.fields
    assert str(unsent) == f"nothing was sent: {pending}"


def test_a_ledger_whose_bookies_are_not_replaced_names_the_one_that_failed() -> None:
    failed = LedgerFailed(
        Failure.BOOKIE_FAILED, is_definite=False, codes=(("bookie-2", Code.TIMEOUT),)
    )
    error = error_from_failure(9, failed)
    assert isinstance(error, errors.QuorumError)
    assert str(error) == (
        "ledger 9: a bookie failed, and the bookies of this ledger are not replaced "
        "(bookie-2: timeout); create a new ledger to go on writing"
    )
