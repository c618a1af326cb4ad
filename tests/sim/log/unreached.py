"""What no random schedule of transactional logs reaches, and why."""

from __future__ import annotations

from tests.sim.coverage import Wanted

FILES = (
    "ledgerlog_spark/protocol/log/change",
    "ledgerlog_spark/protocol/log/commit",
    "ledgerlog_spark/protocol/log/read",
    "ledgerlog_spark/protocol/log/machine.py",
    "ledgerlog_spark/protocol/log/password.py",
    "ledgerlog_spark/protocol/log/seal.py",
    "ledgerlog_spark/protocol/log/state/pages.py",
    "ledgerlog_spark/protocol/log/state/walk.py",
    "ledgerlog_spark/protocol/log/sweep.py",
    "ledgerlog_spark/protocol/log/transaction.py",
    "ledgerlog_spark/log/host.py",
    "ledgerlog_spark/log/committing/commits.py",
    "ledgerlog_spark/log/committing/job.py",
    "ledgerlog_spark/log/log.py",
    "ledgerlog_spark/log/maintenance/log_maintenance.py",
    "ledgerlog_spark/log/logs.py",
    "ledgerlog_spark/log/maintenance/older_ledgers.py",
    "ledgerlog_spark/log/retries.py",
    "ledgerlog_spark/log/maintenance/sweep_memory.py",
    "ledgerlog_spark/log/maintenance/sweeper.py",
    "ledgerlog_spark/log/reading/version_at.py",
    "ledgerlog_spark/metadata/logs/nodes.py",
    "ledgerlog_spark/metadata/leases.py",
    "ledgerlog_spark/metadata/logs/producers.py",
    "ledgerlog_spark/metadata/logs/store.py",
    "ledgerlog_spark/metadata/store_clock.py",
    "ledgerlog_spark/upkeep/upkeep.py",
)
"""Files and folders whose lines must be reached."""

CALLER = "a mistake of a caller, which the actors do not make: unit tests"
LEADERS = "of leader logs: tests/sim/leader"
LOSS = "what is lost would be a violation here: tests/unit/log"
LATER = "of a later release, or damaged: tests/unit/log"
RACE = "two requests of others between two of one: tests/unit/log walks it"
GIVES_UP = "as many conflicts in a row as it takes to give up: tests/unit/log"
PATIENCE = "a takeover that takes longer than it may: tests/unit/log/test_commit_timeout.py"
PEOPLE = "for people and for the command line: tests/unit"

REASONS: dict[str, str] = {
    "PagesWritten.CONFLICT": "no token names two attempts, which the store of this one requires",
    "*/commit.py:CommitMachine._settle": "its producer is forgotten meanwhile: test_log_commit",
    "*/commit.py:CommitMachine._has_token": "its log is removed meanwhile: test_log_commit",
    "*/commit.py:CommitMachine._compare_password": LOSS,
    "*/commit/plan.py:CommitRequest.__post_init__": CALLER,
    "*/commit/plan.py:listed": "statistics of logs with very many ranges: test_log_sizes",
    "*/commit/plan.py:_schema": "logs of records, which have no columns: test_log_commit",
    "*/commit/plan.py:_storable": "a schema of megabytes: test_log_sizes",
    "*/epoch.py:EpochMachine._take_over": "its producer is deleted: test_transactional_logs",
    "*/expiry.py:ExpiryMachine._step_of": LEADERS,
    "*/result.py:left_by": "a store that does not say the version that it wrote: test_log_known",
    "*/machine.py:LogMachine._miss_page": LOSS,
    "*/machine.py:LogMachine._head_of": LATER,
    "*/machine.py:LogMachine.may_write": PATIENCE,
    "*/machine.py:LogMachine._read_error": "an unknown outcome of no write: unit tests",
    "*/merge.py:MergeRequest.__post_init__": CALLER,
    "*/password.py:_salt": LATER,
    "*/sweep.py:OrphansMachine.*": LEADERS,
    "*/transaction.py:HeadTransaction.leave": LEADERS,
    "*/transaction.py:HeadTransaction._send": LEADERS,
    "*/transaction.py:HeadTransaction._on_unlistable": LEADERS,
    "*/versions.py:SnapshotMachine._*": LEADERS,
    "*/versions.py:_shown": LEADERS,
    "*/retention.py:RetentionMachine._target": "ranges of earlier releases: test_long_lists.py",
    "*/truncate.py:_oldest_left": LEADERS,
    "*/log/host.py:LogHost.perform": LEADERS,
    "*/log/host.py:LogHost._write_head": LEADERS,
    "*/log/host.py:LogHost._time": RACE,
    "*/log/host.py:LogHost._read_password": "heads of earlier releases: machines alone meet them",
    "*/log/host.py:_attempt": "errors that no machine has a reply for: test_transactional_logs",
    "*/commits.py:LogCommits.begin": CALLER,
    "*/commits.py:LogCommits._register": GIVES_UP,
    "*/commits.py:LogCommits.forget_job": "a job of more than 1,000 ledgers: tests/unit/log",
    "*/log/log.py:_call_of": "runs when the module is imported",
    "*/log/log.py:Log.lead": LEADERS,
    "*/job.py:checked_app": CALLER,
    "*/log_maintenance.py:LogMaintenance.restore": "does not happen",
    "*/log_maintenance.py:LogMaintenance.truncate": GIVES_UP,
    "*/log_maintenance.py:LogMaintenance._drop": GIVES_UP,
    "*/log_maintenance.py:LogMaintenance.check": LEADERS,
    "*/log_maintenance.py:LogMaintenance.delete_orphans": LEADERS,
    "*/log_maintenance.py:LogMaintenance.delete": GIVES_UP,
    "*/log_maintenance.py:LogMaintenance._require_versions": LEADERS,
    "*/log_maintenance.py:LogMaintenance._restore": CALLER,
    "*/log_maintenance.py:LogMaintenance._password_of": "two passwords: test_log_password",
    "*/logs.py:Logs.watch_names": PEOPLE,
    "*/logs.py:Logs._head_of_owner": LATER,
    "*/logs.py:logs_of": CALLER,
    "*/older_ledgers.py:seal_open.*": "deleted between two requests: tests/unit/log",
    "*/retries.py:Retries._wait_for_turn": "taken out by others: test_concurrent_commits",
    "*/sweep_memory.py:LogDue.see": "the store's clock is set back: tests/unit/upkeep",
    "*/sweeper.py:Sweeper._remove_rest": RACE,
    "*/sweeper.py:_LogSweep._sweep_staged": GIVES_UP,
    "*/sweeper.py:_LogSweep._deregister": GIVES_UP,
    "*/sweeper.py:_LogSweep._claimed": LEADERS,
    "*/sweeper.py:_LogSweep.sweep_deleted": LEADERS,
    "*/sweeper.py:_LogSweep._items": RACE,
    "*/sweeper.py:_LogSweep._deregister_all": RACE,
    "*/version_at.py:_text": PEOPLE,
    "*/logs/nodes.py:CommitQueue.join": "lost answers and logs of earlier releases: contract",
    "*/logs/nodes.py:CommitQueue.members": RACE,
    "*/leases.py:Leases.*": "lost answers, and who holds it: test_metadata_leases",
    "*/producers.py:LogProducers.*": "races, lost answers: test_log_store",
    "*/logs/store.py:LogStore.*": "races and lost answers: tests/contract/test_log_store.py",
    "*/store_clock.py:*": "clocks of machines: tests/unit/metadata/test_store_clock.py",
    "*/upkeep.py:Kept.did_something": PEOPLE,
    "*/upkeep.py:Upkeep._keep_rows": "merging, which reads rows: tests/unit/upkeep",
    "*/upkeep.py:leased": "waiting for another process: tests/unit/upkeep",
    "*/upkeep.py:Kept.counts": PEOPLE,
    "*/upkeep.py:Upkeep.run": PEOPLE,
    "*/upkeep.py:holder": PEOPLE,
    "*/upkeep.py:_leases_of": CALLER,
}

CODES = (
    *(
        f"{kind}.{outcome}"
        for kind in ("HeadRead", "ProducerRead", "PagesRead", "RegisteredRead")
        for outcome in ("OK", "UNAVAILABLE", "UNREADABLE")
    ),
    "PasswordRead.OK",
    "Written.OK",
    "Written.CONFLICT",
    "Written.UNKNOWN",
    "PagesWritten.OK",
    "PagesWritten.CONFLICT",
    "PagesWritten.UNKNOWN",
    "PagesRead.GONE",
    "CommitMachine.CommitUnknownError",
    "CommitMachine.ConcurrentCommitError",
    "CommitMachine.LogNotFoundError",
    "CommitMachine.MetadataFormatError",
    "CommitMachine.MetadataUnavailableError",
    "CommitMachine.ProducerFencedError",
    "CommitMachine.UnauthorizedError",
    "EpochMachine.MetadataUnknownError",
    "EpochMachine.ProducerFencedError",
    "EpochMachine.StaleCheckpointError",
    "MergeMachine.ConcurrentCommitError",
    "RestoreMachine.ConcurrentCommitError",
    "TruncateMachine.ConfigurationError",
    "SnapshotMachine.VersionNotAvailableError",
)
"""Outcomes and failures that schedules must reach."""

WANTED = Wanted(FILES, REASONS, codes=CODES)
