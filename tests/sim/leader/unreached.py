"""What no random schedule of leader logs reaches, and why."""

from __future__ import annotations

from tests.sim.coverage import Wanted

TABLES = ("LEADER_TABLE",)

FILES = (
    "ledgerlog_spark/protocol/leader/appends.py",
    "ledgerlog_spark/protocol/leader/attempts.py",
    "ledgerlog_spark/protocol/leader/candidacy.py",
    "ledgerlog_spark/protocol/leader/claim.py",
    "ledgerlog_spark/protocol/leader/list.py",
    "ledgerlog_spark/protocol/leader/leader.py",
    "ledgerlog_spark/protocol/leader/look.py",
    "ledgerlog_spark/protocol/leader/opening.py",
    "ledgerlog_spark/protocol/leader/rolling.py",
    "ledgerlog_spark/protocol/leader/standing.py",
    "ledgerlog_spark/protocol/log/transaction.py",
    "ledgerlog_spark/client/host/event_queue.py",
    "ledgerlog_spark/log/maintenance/check.py",
    "ledgerlog_spark/log/reading/committed_range.py",
    "ledgerlog_spark/log/leader/entries_in_flight.py",
    "ledgerlog_spark/log/leader/leader.py",
    "ledgerlog_spark/log/leader/host.py",
    "ledgerlog_spark/log/leader/rows.py",
    "ledgerlog_spark/log/leader/ledger_writer.py",
    "ledgerlog_spark/log/reading/ledger_entries.py",
    "ledgerlog_spark/log/reading/open_ends.py",
    "ledgerlog_spark/log/records.py",
    "ledgerlog_spark/log/reading/record_reader.py",
    "ledgerlog_spark/log/reading/row_cursor.py",
    "ledgerlog_spark/metadata/ledgers/ids.py",
)
"""Files and folders whose lines must be reached."""

LATE = "an ignored answer of what ended: too rare; test_leader_log walks every pair"
CALLER = "a mistake of a caller, which the actors do not make: unit tests"
BUG = "what a bug does: tests/unit/log/test_leader.py"
LOSS = "what is lost would be a violation here: tests/unit/log"
THREADS = "for the faces of other threads: tests/unit/log/test_leader.py"
CLAIMS = "limits, losses and late ends: tests/unit/leader/test_fenced_leader.py"
PEOPLE = "for people: tests/unit"
CANCELLED = "a client that is closed: tests/unit/leader/test_closed_clients.py"
LONG = "ids that are used up: tests/contract/test_metadata_ledgers.py"

REASONS: dict[str, str] = {
    "*/leader.py:Leader.leave": CANCELLED,
    "*:*.__repr__": PEOPLE,
    "*/appends.py:_happened": PEOPLE,
    "*/leader/leader.py:LeaderLog._on_open_timer": LATE,
    "*/appends.py:LeaderAppends.add": CALLER,
    "*/leader/leader.py:LeaderLog._on_confirmed": LATE,
    "*/rolling.py:LeaderLedgers.look_at_size_and_age": "an entry goes before: unit tests",
    "*/leader/leader.py:LeaderLog._on_close_answered": CLAIMS,
    "*/leader/leader.py:LeaderLog._on_standing": CLAIMS,
    "*/standing.py:StandingCheck._check_is_dead": CLAIMS,
    "*/leader/host.py:LeaderHost._join": CLAIMS,
    "*/leader/host.py:LeaderHost._look_for": CLAIMS,
    "*/transaction.py:HeadTransaction._attempt": "pages swept meanwhile: test_transactional_logs",
    "*/event_queue.py:EventQueue.*": BUG,
    "*/check.py:LogCheck.*": PEOPLE,
    "*/check.py:LogChecker._*": "transactional logs, damage, loss: test_log_upkeep",
    "*/committed_range.py:*": LOSS,
    "*/entries_in_flight.py:EntriesInFlight._results": "an append ends in a cut entry: test_leader",
    "*/leader.py:Leader.schema": THREADS,
    "*/leader.py:Leader._on_crash": BUG,
    "*/leader/host.py:LeaderHost._text": BUG,
    "*/leader/host.py:LeaderHost._create": "a ledger is made while its leader ends: test_leader",
    "*/leader/rows.py:LeaderRows.*": CALLER,
    "*/ledger_writer.py:LeaderWriter.*": "handles never call it so: tests/unit/log/test_leader.py",
    "*/ledger_entries.py:entry_holding": "gaps, which are violations here: test_leader",
    "*/ledger_entries.py:EntryCursor.*": LOSS,
    "*/ledger_entries.py:RecordCursor.take": "entries that are passed over whole: test_leader",
    "*/open_ends.py:view.*": "transactional logs: tests/sim/log",
    "*/open_ends.py:[!v]*": LOSS,
    "*/log/records.py:*": CALLER,
    "*/record_reader.py:RecordReader.*": "truncation and loss while it reads: test_leader",
    "*/row_cursor.py:Row*": "entries that are passed over whole, conveniences: test_leader_rows",
    "*/ids.py:*": LONG,
}

CODES = (
    "HeadRead.OK",
    "HeadRead.UNAVAILABLE",
    "HeadRead.UNREADABLE",
    "Written.OK",
    "Written.CONFLICT",
    "Written.UNKNOWN",
    "LedgerCreated.FAILED",
    "LedgerSealed.FAILED",
    "CloseAnswered.OK",
    "CloseAnswered.LOST",
    "CloseAnswered.FAILED",
    "LeaderLog.LeaderDeposedError",
    "LeaderLog.LogNotFoundError",
    "LeaderLog.LedgerRecoveryError",
    "LeaderLog.NotEnoughBookiesError",
    "LeaderLog.MetadataUnavailableError",
)
"""Outcomes and failures that schedules must reach."""

WANTED = Wanted(FILES, REASONS, TABLES, CODES)
