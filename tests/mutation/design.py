"""Mistakes that the design of the storage must prevent, each with the test that fails with it.

`python -m tests.mutation.design` applies each mistake and runs only its test. Some dangers of other
designs cannot occur here:

- An origin that comes from another sequence, or a mark of a journal that was replaced: a directory
  has one sequence of records and no marks (ADR 31). The name of a journal file contains its run, so
  a replaced journal counts as missing: `mode_missing_journal_is_an_empty_one`.

The mistakes `slot_reused_under_pin` and `freed_file_does_not_wait_for_readers`, in other modules,
free a slot during a reading of its file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.mutation.mutation import Mutation, pytest_of

STORAGE = "bookie_server/storage"

MUTATIONS = [
    Mutation(
        "origin_repeats",
        f"{STORAGE}/boot.py",
        "self.shared.sequences.next_sequence = largest_sequence(scans, seen) + 1",
        "self.shared.sequences.next_sequence = seen + 1",
        "a new record has the origin of an older one, so an old copy of an entry wins",
    ),
    Mutation(
        "forget_between_slices",
        f"{STORAGE}/files/manifest.py",
        "        block = encode(ids)\n        manifest = compose()\n",
        "        manifest = compose()\n"
        "        block = encode(ids)\n"
        "        offset = await self._append(file, offset, block)\n"
        "        changed, states.changed = states.changed, set()\n"
        "        taken |= changed\n"
        "        block = encode(changed)\n",
        "a tombstone is forgotten after the MANIFEST was composed, and its fence is lost",
    ),
    Mutation(
        "read_before_journal_sync",
        f"{STORAGE}/journal.py",
        "                began_ms = self._clock.monotonic_ms()\n"
        "                is_synced = await self._writer.write(",
        "                began_ms = self._clock.monotonic_ms()\n"
        "                for record in group:\n"
        "                    if record.entry_ids:\n"
        "                        self._files.active.index.insert(record)\n"
        "                is_synced = await self._writer.write(",
        "a reader sees an entry that a power loss takes",
    ),
    Mutation(
        "list_does_not_wait",
        f"{STORAGE}/reading/answers.py",
        "        is_durable = await durable is Code.OK\n",
        "        is_durable = True\n",
        "a worker deletes a mark because of an entry that a power loss takes away",
    ),
    Mutation(
        "forget_ignores_journal",
        f"{STORAGE}/drops.py",
        "            is_named = any(ledger_id in file.index for file in keeper.opened)\n",
        "            is_named = False\n",
        "a tombstone is forgotten, and a file that is not finished yet brings its entries back",
    ),
    Mutation(
        "drain_skipped",
        f"{STORAGE}/modes/setup.py",
        "await journals.needed(run), run) if run.needs_journal else 0\n",
        "await journals.needed(run), run) if run.journal and "
        "shared.settings.mode_settings.journal_directory else 0\n",
        "a start in another write mode ignores records that are only in the journal",
    ),
    Mutation(
        "mode_from_settings",
        f"{STORAGE}/modes/setup.py",
        "    if run.is_synced:\n        proved",
        "    is_direct = shared.settings.mode_settings.write_mode is BookieWriteMode.DIRECT\n"
        "    if run.is_synced or is_direct:\n        proved",
        "a start in direct mode denies entries that a run without syncs acknowledged",
    ),
]

_CRASH = "tests/crash"
_FULL_FILES = f"{_CRASH}/test_full_files.py"
_CRASH_COMPACTION = f"{_CRASH}/test_compaction.py"
_SCRUB = "tests/unit/bookie/test_scrub.py"
_DROPS = "tests/unit/bookie/test_drops.py"
_SCRIPTS = f"{_CRASH}/test_storage_scripts.py"
_MODES = f"{_CRASH}/test_modes.py"
_UNSYNCED = f"{_CRASH}/test_unsynced_runs.py"
_COMPACTION = "tests/unit/bookie/test_compaction.py"

DESIGNED = {
    "origin_repeats": (
        "origin_repeats",
        f"{_SCRIPTS}::test_no_origin_is_used_twice_when_a_start_copies_records",
    ),
    "delta_unnamed": (
        "state_file_counts_as_it_was",
        f"{_SCRIPTS}::test_a_fence_in_an_appended_part_of_the_states_outlives_its_record",
    ),
    "forget_between_slices": (
        "forget_between_slices",
        f"{_SCRIPTS}::test_a_ledger_that_is_forgotten_during_a_commit_stays_fenced",
    ),
    "roll_before_last_sync": (
        "mode_roll_before_last_sync",
        f"{_UNSYNCED}::test_a_file_is_synced_before_the_next_file_gets_a_record",
    ),
    "read_before_journal_sync": (
        "read_before_journal_sync",
        f"{_SCRIPTS}::test_an_entry_is_read_only_after_its_sync",
    ),
    "control_unsynced_when_weak": (
        "mode_control_unsynced_when_weak",
        f"{_UNSYNCED}::test_without_syncs_of_adds_everything_else_is_answered_after_a_sync",
    ),
    "checkpoint_skips_idle": (
        "mode_checkpoint_skips_idle",
        f"{_MODES}::test_control_records_alone_are_synced_by_a_checkpoint",
    ),
    "mark_before_flush": (
        "mode_mark_before_flush",
        f"{_SCRIPTS}::test_a_journal_file_is_released_only_after_the_sync_of_its_records",
    ),
    "forget_ignores_journal": (
        "forget_ignores_journal",
        (
            f"{_CRASH}/test_full_files.py"
            "::test_a_dropped_ledger_is_remembered_for_as_long_as_a_full_file_names_it"
        ),
    ),
    "drain_skipped": (
        "drain_skipped",
        f"{_SCRIPTS}::test_a_start_in_another_mode_finds_what_is_only_in_the_journal",
    ),
    "mode_from_settings": (
        "mode_from_settings",
        f"{_SCRIPTS}::test_a_start_in_direct_mode_does_not_trust_a_run_without_syncs",
    ),
    "same_boot_ignores_holes": (
        "mode_same_boot_ignores_holes",
        f"{_UNSYNCED}::test_lost_pages_under_a_valid_proof_are_noticed",
    ),
    "unreadable_is_dead": (
        "unreadable_is_dead",
        (
            f"{_COMPACTION}::test_file_that_the_device_cannot_read_is_kept_and_compacted_when_the_"
            "error_has_passed"
        ),
    ),
    "copy_without_checksum": (
        "copy_without_checksum",
        (
            f"{_COMPACTION}::test_file_with_a_damaged_entry_is_kept_and_the_entry_is_neither_absent_"
            "nor_other_bytes"
        ),
    ),
    "copy_gets_new_origin": (
        "copy_gets_new_origin",
        (
            f"{_COMPACTION}::test_newer_entry_of_recovery_counts_although_the_older_one_was_copied_"
            "later"
        ),
    ),
    "superseded_by_unsynced": (
        "superseded_by_unsynced",
        f"{_COMPACTION}::test_newer_entry_that_is_not_synced_does_not_make_the_older_one_dead",
    ),
    "sources_freed_first": (
        "sources_freed_first",
        (
            f"{_CRASH}/test_compaction.py"
            "::test_a_crash_at_each_operation_of_a_compaction_loses_and_revives_nothing"
        ),
    ),
    "forget_ignores_draft": (
        "forget_ignores_draft",
        (
            f"{_COMPACTION}::test_tombstone_is_remembered_while_only_the_draft_has_records_of_its_"
            "ledger"
        ),
    ),
    "adds_eat_compaction_slot": (
        "adds_eat_compaction_slot",
        f"{_CRASH}/test_compaction.py::test_a_full_disk_gets_its_room_back_though_no_file_is_dead",
    ),
    "slot_reused_under_pin": (
        "freed_file_does_not_wait_for_readers",
        (
            "tests/unit/bookie/test_drops.py"
            "::test_reading_under_way_keeps_its_slot_from_being_used_again"
        ),
    ),
    "scrub_reads_cache": (
        "scrub_reads_cache",
        f"{_SCRUB}::test_damage_under_the_page_cache_is_found_and_reads_answer_unknown",
    ),
    "burst_passes_fence": (
        "burst_passes_fence",
        "tests/unit/bookie_service/test_v2_together.py::test_burst_passes_no_fence",
    ),
    "burst_one_code": (
        "burst_one_code",
        "tests/unit/bookie_service/test_v2_together.py::test_burst_has_not_one_code",
    ),
}
"""For each danger, by name: the mutation, and the test that fails with it."""


def main() -> int:
    """Run each script with its mistake. Return 1 if a script passes."""
    from tests.mutation.lists import all_mutations
    from tests.mutation.run import Workspace

    by_name = {mutation.name: mutation for mutation in all_mutations()}
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ledgerlog-scripts-") as directory:
        workspace = Workspace(Path(directory) / "tree")
        for name, (mutation, script) in DESIGNED.items():
            code, _ = workspace.play(by_name[mutation], pytest_of(script), 300.0)
            failed += code == 1
            told = "fails" if code == 1 else f"DOES NOT FAIL ({code})"
            sys.stdout.write(f"{name} ({mutation}): {told}  {script}\n")
            sys.stdout.flush()
    sys.stdout.write(f"scripts: {failed} of {len(DESIGNED)} fail with their mistake\n")
    return int(failed < len(DESIGNED))


if __name__ == "__main__":
    sys.exit(main())
