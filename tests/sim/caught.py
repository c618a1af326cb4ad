"""The schedule that last noticed each mutation. It runs first, so that a test is fast.

The test would run this schedule in any case. If it no longer notices the mutation, because the
machine or the schedules were changed, all schedules run, and the test prints the one that does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from tests.sim.log.checks import Violation

CAUGHT_AT: Mapping[str, int] = {
    "crash a_journal_redone_before_its_sync": 3,
    "crash change_that_is_not_noted": 64,
    "crash fence_not_durable": 8,
    "crash fence_skips_queue": 23,
    "crash group_that_overtakes_the_one_before": 2,
    "crash mark_before_flush": 197,
    "crash mode_from_settings": 8,
    "crash replay_without_tombstones": 2,
    "handles blocked_requests_stay_behind": 7,
    "handles retired_connections_are_kept": 17,
    "leader ack_across_roll": 1,
    "leader append_times_of_the_local_clock": 2,
    "leader forget_attempt": 26,
    "leader host_fails_sent_appends_for_certain": 2,
    "leader host_keeps_a_broken_ledger_to_itself": 2,
    "leader offset_gap_after_seal": 1,
    "leader reappend_after_lost_close": 118,
    "leader reappend_without_close": 33,
    "leader relist_after_lost_reply": 308,
    "leader roll_before_close": 6,
    "leader rows_of_any_columns": 42,
    "leader seal_last_only": 2,
    "leader truncate_deletes_first": 6,
    "leader unknown_cas_is_failure": 1,
    "log any_password_begins_a_job": 3,
    "log any_password_reads_a_ledger": 3,
    "log change_stands_still_after_a_conflict": 1,
    "log columns_are_not_compared": 3,
    "log commit_forgets_registration_check": 73,
    "log conflict_is_taken_for_an_outage": 3,
    "log deleted_log_goes_with_what_is_registered": 12,
    "log deleted_log_is_removed_from_its_leaves": 221,
    "log expected_version_is_not_compared": 2,
    "log failed_write_deletes_its_producer_first": 340,
    "log failed_write_deletes_the_log_of_others": 33,
    "log failed_write_deletes_what_was_changed": 628,
    "log first_commit_stands_beside_others": 185,
    "log jobs_are_never_forgotten": 2,
    "log mark_is_not_looked_at_again": 82,
    "log merge_blind_switch": 35,
    "log merge_deletes_at_once": 412,
    "log merge_forgets_to_mark": 1,
    "log old_ledgers_passwords_are_not_compared": 31,
    "log password_is_kept_in_the_head": 1,
    "log rebase_concludes_from_an_old_head": 221,
    "log registration_ignores_the_producer": 2,
    "log released_ledgers_get_no_mark": 7,
    "log replay_batch_again": 2,
    "log restore_does_not_look_at_what_was_committed": 56,
    "log retention_by_local_clock": 2,
    "log retention_looks_again_an_hour_later": 2,
    "log sweep_pages_blindly": 32,
    "log turn_never_comes": 1,
    "log versions_expire_one_too_late": 11,
    "log zombie_starts_from_what_is_known": 1,
    "service everybody_is_in_the_way": 2,
    "service memory_goes_with_the_first_answer": 12,
    "service slices_cost_nothing": 18,
    "service waits_for_itself": 2,
    "sim close_at_last_pushed": 21,
    "sim fence_one_is_enough": 2,
    "sim gc_forgets_fence": 1,
    "sim gc_trusts_stale_listing": 25,
    "sim lac_moves_during_change": 1,
    "sim no_floor_at_last_fragment": 171,
    "sim timeouts_are_negatives": 8,
}
"""Seeds by folder and mutation. A mutation that the first schedules notice needs no seed."""


def seeds(mutation: str, schedules_max: int) -> Iterable[int]:
    """Return the seeds below `schedules_max`. The seed that last noticed the mutation is first.

    Args:
        mutation: Folder and name.
        schedules_max: The number of schedules, one of which must notice the mutation.
    """
    last = CAUGHT_AT.get(mutation, 0)
    assert last < schedules_max, f"schedule {last} is none of {schedules_max}"
    return dict.fromkeys([last, *range(schedules_max)])


def caught(
    mutation: str, match: str, play: Callable[[Iterable[int]], object], schedules_max: int
) -> str:
    """Return the violation of the first schedule that notices the mutation that is applied now.

    Args:
        mutation: Folder and name.
        match: Pattern of the expected violation.
        play: Runs schedules until one schedule raises a violation.
        schedules_max: The number of schedules, one of which must notice the mutation.
    """
    others: list[str] = []
    for seed in seeds(mutation, schedules_max):
        try:
            play([seed])
        except Violation as violation:
            if re.search(match, str(violation)):
                return str(violation)
            others.append(str(violation))
    raise AssertionError(f"no schedule is violated in the expected way; other violations: {others}")
