"""One plausible mistake as a replacement of text, and the suites that must detect it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One plausible mistake: a replacement of text in one file.

    Attributes:
        name: A unique name, in words_with_underscores.
        file: The file's path, relative to the repository.
        old: The replaced text, which occurs exactly once in the file.
        new: The new text. The file still compiles with it.
        reason: The effect of the mistake, in one line.
        equivalent: Why no test can detect the mistake; empty if a test must detect it.
    """

    name: str
    file: str
    old: str
    new: str
    reason: str
    equivalent: str = ""

    def applied(self, source: str) -> str:
        """The file's text with the mistake.

        Raises:
            ValueError: `old` does not occur exactly once.
        """
        found = source.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: `old` occurs {found} times in {self.file}, not once")
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Suite:
    """The commands that may detect a mistake, the cheapest first.

    Attributes:
        simulators: Names of SIMULATORS.
        tests: Groups of paths for pytest. A group runs if no earlier command detected the mistake.
    """

    simulators: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]


def pytest_of(*tests: str) -> tuple[str, ...]:
    """The command for tests that end at the first failure, without `python -m`.

    Tests that apply mutations themselves are left out, because they test the simulators.
    """
    quiet = ("pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "--no-header")
    return (*quiet, "-k", "not mutation and not catches", *tests)


SIMULATORS = {
    "ledger": ("tests.sim", "--schedules", "300", "--seed", "1", "--no-shrink"),
    "ledger scripts": pytest_of(
        "tests/sim/test_counterexamples.py",
        "tests/sim/test_liveness.py",
        "tests/sim/test_outcomes.py",
    ),
    "log": ("tests.sim.log", "--schedules", "160", "--seed", "1"),
    "lists": ("tests.sim.log.lists", "--schedules", "60", "--seed", "1"),
    "stores": ("tests.sim.log.stores", "--schedules", "100", "--seed", "1"),
    "leader": ("tests.sim.leader", "--schedules", "200", "--seed", "1"),
    "leader hosts": ("tests.sim.leader", "--hosts", "--schedules", "120", "--seed", "1"),
    "leader scripts": pytest_of(
        "tests/sim/leader/test_counterexamples.py",
        "tests/sim/leader/test_deleted_schedules.py",
        "tests/sim/leader/test_damaged_schedules.py",
    ),
    "handles": ("tests.sim.handles", "--schedules", "40", "--seed", "1"),
    "transport": ("tests.sim.transport", "--schedules", "40", "--seed", "1"),
    "storage": ("tests.crash.schedules", "--schedules", "130", "--seed", "0"),
    "crash": pytest_of("tests/crash"),
    "audits": ("tests.sim.auditor", "--schedules", "300", "--seed", "0"),
    "copies": ("tests.sim.auditor", "--copies", "--schedules", "60", "--seed", "0"),
    "loss": ("tests.sim.loss", "--schedules", "60", "--seed", "1"),
    "vacate": ("tests.sim.vacate", "--schedules", "100", "--seed", "0"),
    "service": ("tests.sim.service", "--schedules", "120", "--seed", "1"),
}
"""The simulators, by name: random schedules, and the scripts and power losses that always run."""

_UNIT = "tests/unit"
_LOG_TESTS = (
    (f"{_UNIT}/log", "tests/contract/test_log_store.py"),
    (f"{_UNIT}/upkeep", f"{_UNIT}/leader"),
    ("tests/properties/test_long_lists.py", "tests/properties/test_log_sizes.py"),
)
_LEADER_HOSTS = ("leader hosts", "handles")
_LEADER_TESTS = (
    (
        f"{_UNIT}/log/test_leader.py",
        f"{_UNIT}/log/test_leader_rows.py",
        f"{_UNIT}/leader/test_open_timeout.py",
    ),
)

_AUDIT_TESTS = (
    (
        f"{_UNIT}/autorecovery/test_auditor.py",
        f"{_UNIT}/autorecovery/test_audit_service.py",
        f"{_UNIT}/autorecovery/test_checks.py",
        f"{_UNIT}/autorecovery/test_replica_rounds.py",
        f"{_UNIT}/autorecovery/test_digest_copies.py",
        f"{_UNIT}/autorecovery/test_accepted.py",
        f"{_UNIT}/autorecovery/test_copy_requests.py",
        f"{_UNIT}/autorecovery/test_index.py",
        f"{_UNIT}/autorecovery/test_losses.py",
        f"{_UNIT}/autorecovery/test_placements.py",
        f"{_UNIT}/autorecovery/test_store_requests.py",
        f"{_UNIT}/autorecovery/test_stripes.py",
        "tests/properties/test_losses.py",
        "tests/transcripts",
    ),
)
_WORKER = Suite(
    (),
    (
        (
            f"{_UNIT}/autorecovery/test_worker.py",
            f"{_UNIT}/autorecovery/test_job_requests.py",
            f"{_UNIT}/autorecovery/test_accepted.py",
            f"{_UNIT}/protocol/test_replication.py",
            f"{_UNIT}/protocol/test_replication_pace.py",
            f"{_UNIT}/protocol/test_replication_ranges.py",
        ),
        ("tests/sim/healing",),
    ),
)
_PLACEMENT_TESTS = (
    (
        f"{_UNIT}/protocol/test_placement.py",
        f"{_UNIT}/protocol/test_absent_members.py",
        "tests/properties/test_placement.py",
    ),
)
_CONTRACT = "tests/contract"
_REPLICATION = Suite(
    (),
    (
        (
            f"{_UNIT}/metadata/test_replication_stores.py",
            f"{_CONTRACT}/test_replication_marks.py",
            f"{_CONTRACT}/test_replication_notes.py",
            f"{_CONTRACT}/test_replication_election.py",
            f"{_CONTRACT}/test_replication_settings.py",
            f"{_CONTRACT}/test_replication_vacations.py",
            f"{_CONTRACT}/test_replication_locks.py",
        ),
    ),
)

_NOTES = Suite(
    (),
    (
        (f"{_UNIT}/wire/test_repair_notes.py", f"{_UNIT}/wire/test_underreplication.py"),
        *_REPLICATION.tests,
    ),
)

_LAYOUTS = Suite((), ((f"{_UNIT}/metadata", f"{_CONTRACT}/test_metadata_layouts.py"),))

_IDENTITY = Suite(
    (),
    (
        (
            f"{_UNIT}/bookie/test_directory_identity.py",
            "tests/properties/test_directory_identity.py",
        ),
        (f"{_UNIT}/bookie_service/test_directory_record.py",),
        (f"{_UNIT}/bookie_service/test_directory_changes.py",),
        ("tests/crash/test_directory_counters.py",),
    ),
)

_DIRECTORIES = Suite(
    (),
    (
        (f"{_UNIT}/bookie/test_directories.py",),
        ("tests/properties/test_storage_directories.py",),
        (f"{_UNIT}/bookie_service/test_directory_changes.py",),
    ),
)

_SCRUB = (
    (f"{_UNIT}/bookie/test_scrub.py", "tests/crash/test_scrub.py"),
    ("tests/corruption/test_scrub.py",),
)

_REPAIR = Suite(
    ("loss",),
    (
        (
            f"{_UNIT}/bookie/test_repair.py",
            f"{_UNIT}/bookie_service/test_repairs.py",
            f"{_UNIT}/bookie_service/test_repair_adapters.py",
            f"{_UNIT}/bookie_service/test_loss_acceptance.py",
        ),
    ),
)

SUITES = {
    "bookie_server/storage/directories/": _DIRECTORIES,
    "bookie_server/service/membership/directory_changes": _DIRECTORIES,
    "bookie_server/core/repair": _REPAIR,
    "bookie_server/service/repair/": _REPAIR,
    "bookie_server/core/directory_identity": _IDENTITY,
    "bookie_server/core/kept_identity": _IDENTITY,
    "bookie_server/service/membership/directory_record": _IDENTITY,
    "ledgerlog_spark/wire/known_bookie": _IDENTITY,
    "ledgerlog_spark/wire/repair_n": _NOTES,
    "ledgerlog_spark/wire/underreplication": _NOTES,
    "ledgerlog_spark/protocol/log/": Suite(("lists", "log"), _LOG_TESTS),
    "ledgerlog_spark/protocol/placement/": Suite((), _PLACEMENT_TESTS),
    "ledgerlog_spark/protocol/autorecovery/vacate/": Suite(
        ("vacate",), ((f"{_UNIT}/protocol/test_vacate.py", "tests/sim/vacate"),)
    ),
    "ledgerlog_spark/autorecovery/vacate/": Suite(
        (), ((f"{_UNIT}/autorecovery/test_vacations.py",),)
    ),
    "ledgerlog_spark/protocol/autorecovery/audit/": Suite(("audits", "copies"), _AUDIT_TESTS),
    "ledgerlog_spark/autorecovery/audit/": Suite((), _AUDIT_TESTS),
    "ledgerlog_spark/autorecovery/replicate/": _WORKER,
    "ledgerlog_spark/protocol/autorecovery/replicate/": _WORKER,
    "ledgerlog_spark/protocol/placement/replacement": Suite(
        ("ledger", "ledger scripts"), _PLACEMENT_TESTS
    ),
    "ledgerlog_spark/metadata/topologies": Suite((), (("tests/contract/test_topologies.py",),)),
    "ledgerlog_spark/client/bookies": Suite(
        (),
        (
            (
                f"{_UNIT}/client/test_bookie_choice.py",
                f"{_UNIT}/client/test_writable_bookies.py",
                f"{_UNIT}/client/test_handle_waits.py",
            ),
        ),
    ),
    "ledgerlog_spark/protocol/leader/": Suite(
        ("leader", "leader scripts", "handles"),
        ((f"{_UNIT}/leader", f"{_UNIT}/log/test_leader.py"),),
    ),
    "ledgerlog_spark/protocol/": Suite(
        ("ledger", "ledger scripts", "handles"),
        ((f"{_UNIT}/protocol", "tests/transcripts"), (f"{_UNIT}/client",)),
    ),
    "ledgerlog_spark/log/leader/": Suite(_LEADER_HOSTS, (*_LEADER_TESTS, (f"{_UNIT}/log",))),
    "ledgerlog_spark/log/blocking/leader": Suite((), (*_LEADER_TESTS, (f"{_UNIT}/log",))),
    "ledgerlog_spark/log/leader/entries_in_flight": Suite(_LEADER_HOSTS, _LEADER_TESTS),
    "ledgerlog_spark/log/entry_codec": Suite(_LEADER_HOSTS, (*_LEADER_TESTS, (f"{_UNIT}/log",))),
    "ledgerlog_spark/log/reading/ledger_entries": Suite(_LEADER_HOSTS, ((f"{_UNIT}/log",),)),
    "ledgerlog_spark/log/reading/row_cursor": Suite(_LEADER_HOSTS, ((f"{_UNIT}/log",),)),
    "ledgerlog_spark/log/reading/record": Suite(_LEADER_HOSTS, (*_LEADER_TESTS, (f"{_UNIT}/log",))),
    "ledgerlog_spark/log/record": Suite(_LEADER_HOSTS, (*_LEADER_TESTS, (f"{_UNIT}/log",))),
    "ledgerlog_spark/log/reading/end_watch": Suite(_LEADER_HOSTS, ((f"{_UNIT}/log",),)),
    "ledgerlog_spark/log/maintenance/check": Suite(("leader", "log"), _LOG_TESTS),
    "ledgerlog_spark/log/reading/open_ends": Suite(("leader", "log", *_LEADER_HOSTS), _LOG_TESTS),
    "ledgerlog_spark/log/reading/record_reader": Suite(("leader", "handles"), _LOG_TESTS),
    "ledgerlog_spark/log/": Suite(("log",), _LOG_TESTS),
    "ledgerlog_spark/metadata/replication/": _REPLICATION,
    "ledgerlog_spark/metadata/settled_writes": Suite(
        (), (*_REPLICATION.tests, ("tests/contract/test_known_bookies.py",))
    ),
    "ledgerlog_spark/metadata/ordered": _LAYOUTS,
    "ledgerlog_spark/metadata/ledgers/listing": _LAYOUTS,
    "ledgerlog_spark/metadata/ledgers/walk": _LAYOUTS,
    "ledgerlog_spark/metadata/ledgers/": Suite(
        ("stores", "log", "handles"),
        (
            (
                f"{_UNIT}/metadata",
                f"{_CONTRACT}/test_metadata_ledgers.py",
                f"{_CONTRACT}/test_metadata_layouts.py",
                f"{_CONTRACT}/test_replication_vacations.py",
            ),
            (f"{_UNIT}/client",),
        ),
    ),
    "ledgerlog_spark/tools/": Suite((), ((f"{_UNIT}/tools",),)),
    "ledgerlog_spark/metadata/clusters": Suite(
        (), (("tests/contract/test_metadata_clusters.py",),)
    ),
    "ledgerlog_spark/wire/ledger_loss": Suite((), (("tests/contract/test_accepted_losses.py",),)),
    "ledgerlog_spark/autorecovery/": Suite(
        (), ((f"{_UNIT}/autorecovery/test_composed.py", f"{_UNIT}/autorecovery/test_daemon.py"),)
    ),
    "ledgerlog_spark/autorecovery/accepted": Suite(
        (), ((f"{_UNIT}/autorecovery/test_accepted.py",),)
    ),
    "ledgerlog_spark/metadata/registration.py": Suite(
        (), (("tests/contract/test_metadata_registration.py",),)
    ),
    "ledgerlog_spark/metadata/known_bookies": Suite(
        (), (("tests/contract/test_known_bookies.py",),)
    ),
    "ledgerlog_spark/metadata/leases": Suite(
        ("stores",), (("tests/contract/test_metadata_leases.py",),)
    ),
    "ledgerlog_spark/metadata/": Suite(
        ("stores", "log"),
        ((f"{_UNIT}/metadata", "tests/contract/test_log_store.py"), (f"{_UNIT}/log",)),
    ),
    "ledgerlog_spark/lines": Suite((), ((f"{_UNIT}/test_lines.py", f"{_UNIT}/upkeep"),)),
    "ledgerlog_spark/waits": Suite((), ((f"{_UNIT}/client/test_waits.py", f"{_UNIT}/log"),)),
    "ledgerlog_spark/upkeep/": Suite(("stores", "log"), ((f"{_UNIT}/upkeep",), (f"{_UNIT}/log",))),
    "ledgerlog_spark/client/append_queue": Suite(
        ("handles", *_LEADER_HOSTS),
        ((f"{_UNIT}/client",), *_LEADER_TESTS),
    ),
    "ledgerlog_spark/client/": Suite(
        ("handles",),
        (
            (f"{_UNIT}/client", "tests/properties/test_client_outcomes.py"),
            (f"{_UNIT}/log",),
        ),
    ),
    "ledgerlog_spark/datasource/options/": Suite((), ((f"{_UNIT}/datasource/test_options.py",),)),
    "ledgerlog_spark/datasource/catalog/": Suite(
        (),
        (
            (
                f"{_UNIT}/datasource/test_catalog_tables.py",
                f"{_UNIT}/datasource/test_catalog_definitions.py",
            ),
        ),
    ),
    "ledgerlog_spark/datasource/scan/slice_choice": Suite(
        (), ((f"{_UNIT}/datasource/test_slice_choice.py",),)
    ),
    "ledgerlog_spark/datasource/scan/task_rows": Suite(
        (), ((f"{_UNIT}/datasource/test_pruned_reads.py",),)
    ),
    "ledgerlog_spark/datasource/skipping/": Suite(
        (),
        (
            (
                f"{_UNIT}/datasource/test_skipping.py",
                f"{_UNIT}/datasource/test_row_filters.py",
                f"{_UNIT}/datasource/test_top.py",
                f"{_UNIT}/datasource/test_exact_values.py",
                f"{_UNIT}/datasource/test_entry_skipping.py",
                f"{_UNIT}/datasource/test_jvm_plans.py",
            ),
        ),
    ),
    "ledgerlog_spark/datasource/write/": Suite(
        (),
        (
            (
                f"{_UNIT}/datasource/test_write_new_log.py",
                f"{_UNIT}/datasource/test_write_task.py",
                f"{_UNIT}/datasource/test_column_definitions.py",
            ),
        ),
    ),
    "ledgerlog_spark/arrow/": Suite(
        (), ((f"{_UNIT}/arrow", f"{_UNIT}/datasource/test_column_definitions.py"),)
    ),
    "ledgerlog_spark/transport/grpc": Suite(
        (), ((f"{_UNIT}/transport", "tests/contract/test_transport.py"),)
    ),
    "ledgerlog_spark/transport/": Suite(
        ("transport", "handles"),
        ((f"{_UNIT}/transport",), ("tests/contract/test_transport.py",)),
    ),
    "ledgerlog_spark/wire/": Suite(
        ("transport", "handles"),
        (
            (f"{_UNIT}/wire", "tests/properties/test_slice_requests.py"),
            ("tests/properties/test_wire_frames.py",),
        ),
    ),
    "bookie_server/service/collector": Suite(("ledger",), ((f"{_UNIT}/bookie_service",),)),
    "bookie_server/service/": Suite(
        ("service",), ((f"{_UNIT}/bookie_service",), ("tests/contract/test_transport.py",))
    ),
    "bookie_server/tools/": Suite((), ((f"{_UNIT}/bookie_tools",),)),
    "bookie_server/storage/scrub/": Suite((), _SCRUB),
    "bookie_server/core/background/scrub": Suite((), _SCRUB),
    "bookie_server/storage/modes/redo": Suite(
        ("storage", "crash"), (("tests/corruption/test_sample.py",), (f"{_UNIT}/bookie",))
    ),
    "bookie_server/": Suite(
        ("storage", "crash", "ledger", "ledger scripts"),
        (
            (f"{_UNIT}/bookie",),
            ("tests/properties/test_storage_drops.py", f"{_UNIT}/bookie_tools"),
        ),
    ),
}
"""The suites, by the beginning of a mutation's file. The longest matching beginning counts."""


def suite_of(mutation: Mutation) -> Suite:
    """The suite for a mutation."""
    fitting = [prefix for prefix in SUITES if mutation.file.startswith(prefix)]
    assert fitting, f"no suite covers {mutation.file}"
    return SUITES[max(fitting, key=len)]
