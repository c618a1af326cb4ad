"""Mistakes in the hosts of replication: the worker, its requests, its pace, the lost members."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

HOST = "ledgerlog_spark/autorecovery/replicate"
MACHINE = "ledgerlog_spark/protocol/autorecovery/replicate"
MEMBERS = "ledgerlog_spark/client/lost_members.py"

MUTATIONS = [
    Mutation(
        "ledgers_of_two_queues_begin_together",
        f"{HOST}/worker.py",
        "for key in islice(due, self._free_places()):",
        "for key in list(islice(due, self._free_places())):",
        "two jobs of a worker change the same ledger",
    ),
    Mutation(
        "each_look_begins_with_the_first_ledger",
        f"{HOST}/worker.py",
        "                self._looked_to[queue] = some[-1]\n",
        "",
        "a thousand ledgers that wait hide all others for ever",
    ),
    Mutation(
        "jobs_in_their_grace_keep_their_places",
        f"{HOST}/worker.py",
        "places = self._settings.jobs_max - len(self._jobs) + self._waiting",
        "places = self._settings.jobs_max - len(self._jobs)",
        "some idle writers delay the repair of all closed ledgers by hours",
    ),
    Mutation(
        "a_new_session_drops_no_jobs",
        f"{HOST}/worker.py",
        "        self._is_lost = True\n",
        "",
        "jobs whose locks are gone go on",
    ),
    Mutation(
        "a_new_bookie_makes_nothing_due",
        f"{HOST}/worker.py",
        "        self._schedule.reset()\n",
        "",
        "a new bookie gets its first copy after five minutes",
    ),
    Mutation(
        "requests_are_sent_in_any_session",
        f"{HOST}/store_requests.py",
        "if self._stores.tree.session_id != self._session_id:",
        "if self._session_id == -1:",
        "a worker changes a record after another one took its lock",
    ),
    Mutation(
        "the_identity_is_not_compared",
        f"{HOST}/store_requests.py",
        "effect.metadata, effect.version, identities",
        "effect.metadata, effect.version, []",
        "a bookie is named that was formatted while it got the copies",
    ),
    Mutation(
        "a_force_is_a_usual_read",
        f"{HOST}/bookie_requests.py",
        "ReadEntry(ledger_id, effect.entry_id, is_recovery=True)",
        "ReadEntry(ledger_id, effect.entry_id)",
        "a target is named whose copies are not durable",
    ),
    Mutation(
        "all_connections_have_one_number",
        f"{HOST}/bookie_requests.py",
        "connection = self._transport.recovery_connections(bookie_id)",
        "connection = 0",
        "a bookie of Apache is named that crashed between two copies",
    ),
    Mutation(
        "recoveries_run_together",
        f"{HOST}/store_requests.py",
        "        async with self._turn:\n            await recover()\n",
        "        if self._turn is not None:\n            await recover()\n",
        "a worker fences hundreds of ledgers at once",
    ),
    Mutation(
        "the_slowest_bookie_decides_that_a_ledger_is_quiet",
        f"{HOST}/store_requests.py",
        "last = max(lacs, default=NO_ENTRY)",
        "last = min(lacs, default=NO_ENTRY)",
        "a ledger is fenced under a writer that has its ack quorum",
    ),
    Mutation(
        "idle_time_is_measured",
        f"{MACHINE}/pace.py",
        "        if now_ms - self._taken_ms >= STEP_MS:\n",
        "        if now_ms < 0:\n",
        "a worker that was idle copies some bytes in a second",
    ),
    Mutation(
        "slow_targets_are_slow_for_ever",
        f"{MACHINE}/pace.py",
        "            self._usual_ms *= GROWTH\n",
        "",
        "a cluster that got slower is repaired at a 64th of its rate",
    ),
    Mutation(
        "failures_of_healed_ledgers_wake_the_worker",
        f"{MACHINE}/schedule.py",
        "failed = (self._failed.get(key) for key in keys if key[1] not in self._running)",
        "failed = iter(self._failed.values())",
        "an idle worker reads the switch 20 times a second",
    ),
    Mutation(
        "one_lock_has_two_callers",
        "ledgerlog_spark/metadata/replication/locks.py",
        "        if ledger_id in taken:\n            return None\n",
        "",
        "the collector of a bookie gives the lock of a job back",
    ),
    Mutation(
        "a_spare_is_a_member_of_no_writer",
        MEMBERS,
        "self._writable.difference(one.ensemble)",
        "self._writable.difference(*(each.ensemble for each in self._writers()))",
        "idle writers keep a lost bookie as soon as writers use all bookies",
    ),
    Mutation(
        "a_lost_bookie_is_announced_at_each_look",
        MEMBERS,
        "        self._since |= dict.fromkeys(lost, now_s)",
        "",
        "all writers list the bookies every two seconds",
    ),
    Mutation(
        "loss_is_decided_without_a_sync",
        MEMBERS,
        "        await registration.sync()\n",
        "",
        "a bookie is replaced that an old replica of the store does not show",
    ),
]
