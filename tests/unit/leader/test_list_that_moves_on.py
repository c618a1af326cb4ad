"""An opening whose list loses ledgers while it seals them."""

from __future__ import annotations

from ledgerlog_spark.errors import LedgerNotFoundError
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from tests.unit.leader.bench import Bench, Process
from tests.unit.leader.test_leader_log import filled, stopped


def find_gone(process: Process) -> int:
    """Answer the pending seal: the ledger does not exist."""
    ask = process.take(lm.SealLedger)
    error = LedgerNotFoundError(f"ledger {ask.ledger_id} does not exist", ledger_id=ask.ledger_id)
    process.tell(lm.LedgerSealed(ask.request, error=error))
    return int(ask.ledger_id)


def test_an_opening_goes_on_when_a_ledger_left_the_list_and_was_deleted() -> None:
    bench = Bench()
    earlier = filled(bench)
    late = bench.process()
    late.start()
    late.answer_until(lm.SealLedger)
    (first,) = bench.open_ids
    earlier.tell(lm.RollRequested())
    earlier.settle()
    find_gone(late)
    late.settle()
    assert late.machine.phase is LeaderPhase.LEADING, late.said
    assert first not in bench.open_ids
    assert len(bench.open_ids) == 1


def test_a_ledger_that_the_list_still_names_and_that_is_gone_ends_the_opening() -> None:
    bench = Bench()
    filled(bench)
    process = bench.process()
    process.start()
    process.answer_until(lm.SealLedger)
    gone = find_gone(process)
    process.answer_until(lm.SealLedger)
    assert find_gone(process) == gone
    error = stopped(process).error
    assert isinstance(error, LedgerNotFoundError)
    assert error.definite
    assert len(bench.ledgers) == 1
