"""Every error has its fields, names a remedy, and survives a pickle."""

from __future__ import annotations

import inspect
import pickle

import pytest

from ledgerlog_spark import errors

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.LedgerLogError)
]


@pytest.mark.parametrize("cls", CLASSES)
def test_error_pickled_keeps_message_fields_and_flags(cls: type[errors.LedgerLogError]) -> None:
    error = cls("it went wrong", definite=False, retriable=True, ledger_id=7)

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is cls
    assert str(copy) == str(error)
    assert (copy.definite, copy.retriable, copy.ledger_id) == (False, True, 7)


@pytest.mark.parametrize("cls", CLASSES)
def test_error_class_appears_in_the_drawn_tree(cls: type[errors.LedgerLogError]) -> None:
    assert errors.__doc__ is not None
    assert cls.__name__ in errors.__doc__


def test_error_unknown_field_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = errors.LedgerError("x", ledger_id=1).entry_id


def test_outcomes_that_may_have_happened_are_not_definite() -> None:
    unknown = {c.__name__ for c in CLASSES if not c.definite}
    assert unknown == {
        "LedgerFencedError",
        "AddTimeoutError",
        "MetadataUnknownError",
        "BookieUnavailableError",
        "CommitUnknownError",
        "LeaderDeposedError",
        "InternalError",
    }
