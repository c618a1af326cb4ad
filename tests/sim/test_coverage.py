"""The listed reasons for unreached code: a reason for reached code fails, unless it is rare."""

from __future__ import annotations

import io

from tests.sim.coverage import Wanted, is_covered

FILES = ("ledgerlog_spark/retry.py",)
ALL = {"*/retry.py:*": "nothing runs in this test"}
REACHED = {"*/retry.py:no_function_of_it": "is reached"}


def outcome(wanted: Wanted) -> tuple[bool, str]:
    out = io.StringIO()
    return is_covered(wanted, lambda: None, out), out.getvalue()


def test_a_gap_needs_a_reason_of_either_kind() -> None:
    assert outcome(Wanted(FILES, ALL))[0]
    assert outcome(Wanted(FILES, {}, rare=ALL))[0]
    is_enough, report = outcome(Wanted(FILES, {}))
    assert not is_enough
    assert "NO REASON" in report


def test_a_reason_for_what_is_reached_is_out_of_date_unless_it_is_rare() -> None:
    is_enough, report = outcome(Wanted(FILES, {**ALL, **REACHED}))
    assert not is_enough
    assert "no_function_of_it: is reached, its reason is OUT OF DATE" in report
    assert outcome(Wanted(FILES, ALL, rare=REACHED))[0]
