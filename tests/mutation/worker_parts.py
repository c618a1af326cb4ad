"""Further mistakes in the hosts of replication, and in what runs all parts of auto-recovery."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

AUTORECOVERY = "ledgerlog_spark/autorecovery"
HOST = f"{AUTORECOVERY}/replicate"
WORKER = f"{HOST}/worker.py"
STORE = f"{HOST}/store_requests.py"
BOOKIE = f"{HOST}/bookie_requests.py"
COMPOSED = f"{AUTORECOVERY}/composed.py"

MUTATIONS = [
    Mutation(
        "a_crashed_job_keeps_its_lock",
        WORKER,
        "            if ended is None or outcome is JobOutcome.CRASHED:\n",
        "            if ended is None:\n",
        "no other worker takes a ledger whose job failed by a defect",
    ),
    Mutation(
        "a_dropped_job_keeps_its_lock",
        WORKER,
        "            if ended is None or outcome is JobOutcome.CRASHED:\n",
        "            if outcome is JobOutcome.CRASHED:\n",
        "no other worker takes the ledgers of a worker that was stopped",
    ),
    Mutation(
        "a_defect_of_a_job_ends_its_task",
        WORKER,
        "except Exception as error:  # noqa: BLE001 - a defect must not end the other jobs\n",
        "except LedgerLogError as error:\n",
        "a ledger whose job failed by a defect is not tried again",
    ),
    Mutation(
        "a_healed_ledger_keeps_its_note",
        WORKER,
        "        elif ended.outcome in (JobOutcome.HEALED, JobOutcome.DELETED):\n",
        "        elif ended.outcome is JobOutcome.DELETED:\n",
        "operators see an old reason of a ledger that is healed",
    ),
    Mutation(
        "a_first_failure_is_noted",
        WORKER,
        "        if failures >= NOTED_FAILURES:\n",
        "        if failures:\n",
        "each ledger that waits for a moment writes a node",
    ),
    Mutation(
        "a_change_of_a_queue_waits",
        WORKER,
        "        if not self._is_changed and now < self._walk_due:\n",
        "        if now < self._walk_due:\n",
        "a new mark is found at the next walk",
    ),
    Mutation(
        "queues_are_walked_at_each_turn",
        WORKER,
        "        if not self._is_changed and now < self._walk_due:\n",
        "        if False:\n",
        "each end of a job reads all notes of all queues",
    ),
    Mutation(
        "jobs_that_wait_are_unbounded",
        WORKER,
        "return max(0, min(places, JOBS_OPEN_MAX - len(self._jobs)))",
        "return max(0, places)",
        "a worker has a job for each open ledger of a cluster",
    ),
    Mutation(
        "a_disabled_worker_heals",
        WORKER,
        "        if not await self._parts.stores.recovery_switch.is_enabled():\n",
        "        if self._parts is None:\n",
        "an operator cannot stop the workers",
    ),
    Mutation(
        "locks_that_were_left_stay",
        WORKER,
        "            await self._parts.stores.replication_locks.release_left()\n",
        "",
        "a ledger waits for the end of the session of a worker that gave it up",
    ),
    Mutation(
        "a_report_outlives_its_worker",
        WORKER,
        "                await self._parts.stores.worker_reports.withdraw(self._id)\n",
        "                pass\n",
        "a worker that was stopped seems to work until its session ends",
    ),
    Mutation(
        "a_failed_ledger_waits_for_the_next_walk",
        WORKER,
        "        if not outcome.ends_task and key not in self._candidates:\n",
        "        if False:\n",
        "the pause after a failure is at least that between two walks",
    ),
    Mutation(
        "locked_ledgers_are_reported",
        WORKER,
        "        if ended.outcome is not JobOutcome.LOCKED:\n",
        "        if ended is not None:\n",
        "three workers write two lines about each ledger that the third one heals",
    ),
    Mutation(
        "the_rate_is_that_of_the_first_report",
        WORKER,
        "self._bytes_before, self._reported_at = counters.bytes_copied, now",
        "self._reported_at = now",
        "the rate of a worker increases for ever",
    ),
    Mutation(
        "a_ledger_is_quiet_since_its_first_look",
        f"{HOST}/quiet.py",
        "if before is None or before[0] != last_entry_id:",
        "if before is None:",
        "a ledger is fenced under a writer that has its ack quorum",
    ),
    Mutation(
        "quiet_ledgers_are_unbounded",
        f"{HOST}/quiet.py",
        "            while len(self._seen) > LEDGERS_MAX:\n",
        "            while False:\n",
        "a worker keeps each open ledger that it has ever seen",
    ),
    Mutation(
        "a_lock_of_a_lost_session_is_released",
        STORE,
        "        if lock is not None and self._stores.replication_locks.is_held(lock):\n",
        "        if lock is not None:\n",
        "a worker deletes the lock that another job took in the new session",
    ),
    Mutation(
        "a_record_is_loaded_without_a_sync",
        STORE,
        "            await self._stores.ledgers.sync()\n",
        "",
        "a job decides by an old record, and each of its writes conflicts",
    ),
    Mutation(
        "registrations_are_read_without_a_sync",
        STORE,
        "            await registration.sync()\n",
        "",
        "a bookie that has returned loses its copies",
    ),
    Mutation(
        "a_read_only_bookie_is_a_target",
        STORE,
        "writable = tuple(await registration.writable())",
        "writable = tuple([*await registration.writable(), *await registration.read_only()])",
        "copies move to a bookie that is full, or that is being drained",
    ),
    Mutation(
        "a_report_of_a_healed_ledger_stays",
        STORE,
        "                if found is not None:\n"
        "                    await notes.delete(self._ledger_id, found.version, self.lock)\n",
        "                del found\n",
        "operators see entries as unreadable that have all their copies",
    ),
    Mutation(
        "a_floor_that_cannot_be_read_is_none",
        STORE,
        "            return m.FloorRead(effect.request, MetadataOutcome.UNAVAILABLE)\n",
        "            return m.FloorRead(effect.request, MetadataOutcome.OK, NO_ENTRY)\n",
        "a recovery ends a ledger below the last entry that a log lists",
    ),
    Mutation(
        "a_list_that_failed_is_empty",
        BOOKIE,
        "        if not (code.is_absent or code is Code.OK):\n",
        "        if code is Code.UNAVAILABLE:\n",
        "a bookie in limbo counts as a bookie without copies",
    ),
    Mutation(
        "a_bookie_without_a_control_service_lists_nothing",
        BOOKIE,
        "            return m.EntriesListed(number, Code.BAD_REQUEST, (), given_up)\n",
        "            return m.EntriesListed(number, Code.OK, (), given_up)\n",
        "all copies of a bookie of Apache are made once more",
    ),
    Mutation(
        "a_batch_is_longer_than_requested",
        BOOKIE,
        "verified_copies(metadata(), ledger_id, first, stored[:count])",
        "verified_copies(metadata(), ledger_id, first, stored)",
        "a target gets entries that it must not hold",
    ),
    Mutation(
        "copies_have_no_pace",
        BOOKIE,
        "        if wait_ms > 0:\n",
        "        if wait_ms > 1e12:\n",
        "copies take the whole network",
    ),
    Mutation(
        "copies_are_adds_of_a_writer",
        BOOKIE,
        "            is_recovery=True,\n        )\n        began_ms",
        "        )\n        began_ms",
        "a fenced bookie refuses all copies",
    ),
    Mutation(
        "adds_that_failed_set_the_usual_time",
        BOOKIE,
        "        if code is Code.OK:\n            now_ms = _now_ms()\n",
        "        if code is not None:\n            now_ms = _now_ms()\n",
        "a target that refuses at once makes all others seem slow",
    ),
    Mutation(
        "a_defect_of_a_part_ends_all",
        COMPOSED,
        "        except Exception as error:  # noqa: BLE001 - every defect is reported\n",
        "        except ValueError as error:\n",
        "a defect of the auditor ends the worker of the same process",
    ),
    Mutation(
        "a_part_that_ran_for_days_restarts_late",
        COMPOSED,
        "failures = 1 if now_s() - began_s >= LONG_SECONDS else failures + 1",
        "failures += 1",
        "after some defects in a year, the auditor pauses for a minute at each",
    ),
    Mutation(
        "parts_restart_without_a_pause",
        COMPOSED,
        "        await asyncio.sleep(RETRY.pause_ms(max(1, failures)) / 1e3)\n",
        "        await asyncio.sleep(0)\n",
        "a defect at the begin of a part takes a whole CPU",
    ),
    Mutation(
        "texts_of_events_are_unbounded",
        f"{AUTORECOVERY}/events.py",
        "return text if len(text) <= TEXT_CHARACTERS_MAX else",
        "return text if text else",
        "an error with a large record fills the log",
    ),
    Mutation(
        "lists_of_events_are_unbounded",
        f"{AUTORECOVERY}/events.py",
        "[short(one) for one in islice(value, LISTED_MAX)]",
        "[short(one) for one in value]",
        "a line names a thousand bookies",
    ),
    Mutation(
        "given_up_entries_are_read_once",
        f"{AUTORECOVERY}/accepted.py",
        "if self._read_at is None or now - self._read_at >= REFRESH_SECONDS:",
        "if self._read_at is None:",
        "a worker looks for entries that an operator gave up until it restarts",
    ),
]
