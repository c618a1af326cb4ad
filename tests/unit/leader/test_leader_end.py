"""The statements about records in the errors that end a leader."""

from __future__ import annotations

from ledgerlog_spark.errors import LeaderDeposedError, LedgerFencedError
from ledgerlog_spark.protocol.leader.appends import LeaderAppends
from ledgerlog_spark.protocol.leader.messages import LeaderSettings

FENCED = LedgerFencedError("ledger 7: another client is recovering the ledger", ledger_id=7)


def deposed(*, end_offset: int, next_offset: int) -> LeaderDeposedError:
    appends = LeaderAppends("orders", LeaderSettings().window)
    appends.end_offset, appends.next_offset = end_offset, next_offset
    return appends.deposed(FENCED)


def test_deposed_leader_names_the_records_that_may_be_there() -> None:
    error = deposed(end_offset=5, next_offset=8)
    assert "records below offset 5 are in the log" in str(error)
    assert "The records from there to offset 8 may be in it" in str(error)
    assert "Before you append these records again, read the log from offset 5" in str(error)


def test_where_all_is_acknowledged_the_error_names_no_records_to_append_again() -> None:
    error = deposed(end_offset=8, next_offset=8)
    assert str(error) == (
        "log 'orders' has another leader, or one of its ledgers was sealed (another client "
        "recovers ledger 7). The records below offset 8 are in the log. No other record of this "
        "leader is in it. To continue, open the log with lead=True again"
    )
    assert (error.end_offset, error.pending_end_offset) == (8, 8)
