"""Mistakes in the repair of a bookie, and in the acceptance of losses."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

CORE = "bookie_server/core/repair.py"
REPAIR = "bookie_server/service/repair"
ONE = f"{REPAIR}/one_ledger.py"
ALL = f"{REPAIR}/repairs.py"
ACCEPT = f"{REPAIR}/acceptance.py"

_LISTING = """\
        unknown, is_whole = array("q"), True
        try:
            async for ledger_id in self._parts.records.ids():
                if not self._storage.is_known(ledger_id):
                    unknown.append(ledger_id)
        except MetadataError as error:
            self._report("listing", fields_of(error))
            is_whole = False
"""
_LIMBO = "        limbo = self._storage.limbo_ledgers()\n"

MUTATIONS = [
    Mutation(
        "repair_of_the_first_stretch_only",
        CORE,
        "            return [VerifyHeld(stretch)] if stretch else [LoadRecord()]\n",
        "            return [LoadRecord()]\n",
        "a ledger is cleared although its entries after the first 4,096 are missing",
    ),
    Mutation(
        "repair_forgets_missing_beyond_the_report",
        CORE,
        "        self._missing_count += 1\n",
        "        self._missing_count = len(self._missing)\n",
        "an operator gives up more entries than the record shows",
    ),
    Mutation(
        "repair_takes_any_bytes",
        ONE,
        "        if not self._checked.is_intact(entry_id, stored):\n",
        "        if not stored:\n",
        "a damaged copy of another bookie is stored as the entry",
    ),
    Mutation(
        "repair_takes_any_bytes_of_a_batch",
        ONE,
        "if stored is not None and self._checked.is_intact(entry_id, stored):",
        "if stored is not None:",
        "a damaged copy that was read with others is stored as the entry",
    ),
    Mutation(
        "repair_ignores_failed_stores",
        ONE,
        "        if self._stores.has_failed:\n",
        "        if False:\n",
        "a ledger is cleared although a fetched entry is not stored",
    ),
    Mutation(
        "repair_does_not_wait_for_stores",
        ONE,
        "    async def _load(self) -> RecordLoaded:\n        await self._stores.finish()\n",
        "    async def _load(self) -> RecordLoaded:\n",
        "a ledger is cleared before its entries are stored",
    ),
    Mutation(
        "repair_ignores_the_answer_to_a_clear",
        ONE,
        "                if code is not Code.OK:\n                    raise _NotStoredError(f",
        "                if False:\n                    raise _NotStoredError(f",
        "a ledger that is in limbo counts as repaired",
    ),
    Mutation(
        "repair_waits_for_silent_bookies_each_time",
        ONE,
        "        if parts.is_silent(bookie_id):\n            return self._not_fetched",
        "        if False:\n            return self._not_fetched",
        "a bookie that hangs delays each entry by the time limit of a read",
    ),
    Mutation(
        "repair_trusts_entries_without_a_digest",
        f"{REPAIR}/held_bytes.py",
        "        if not self.can_be_checked:\n            return False\n",
        "        if not self.can_be_checked:\n            return True\n",
        "bytes of another bookie are stored without a check",
    ),
    Mutation(
        "repair_distrusts_the_directory_without_a_digest",
        f"{REPAIR}/held_bytes.py",
        "        if self.can_be_checked:\n            return self.is_intact(entry_id, stored)\n",
        "        if True:\n            return self.is_intact(entry_id, stored)\n",
        "a ledger of an old BookKeeper never leaves limbo, although all entries are there",
    ),
    Mutation(
        "repair_begins_without_the_stores_doubt",
        ALL,
        "        if doubt.epoch and not doubt.may_be_repaired:\n",
        "        if False:\n",
        "a worker names the bookie for entries that it has lost, after its repair (ADR 39)",
    ),
    Mutation(
        "repair_skips_states_of_adds",
        ALL,
        _LISTING + _LIMBO,
        _LIMBO + _LISTING,
        "the state that an add made is not durable when the doubt ends",
    ),
    Mutation(
        "repair_lists_only_unknown_ledgers",
        ALL,
        "_merged(unknown, limbo)",
        "_merged(unknown)",
        "a ledger with a state gets no durable state in limbo before the doubt ends",
    ),
    Mutation(
        "repair_ends_the_doubt_without_states",
        ALL,
        "return machine.handled() if code is Code.OK else PassEnded(is_whole=False)",
        "return machine.handled()",
        "the doubt ends, and a ledger in limbo has no durable state",
    ),
    Mutation(
        "repair_goes_on_after_another_loss",
        ALL,
        "if self._parts.is_stopped or self._storage.doubt.epoch != doubt.epoch:\n"
        "                return\n            effect",
        "if self._parts.is_stopped:\n                return\n            effect",
        "hours go into a pass that can no longer end the doubt",
    ),
    Mutation(
        "repair_keeps_clients_waiting_for_the_pass",
        ALL,
        "await self._repair_asked(doubt, ASKED_IN_TURN_MAX)\n                report =",
        "report =",
        "a reader gets unknown until the pass reaches its ledger",
    ),
    Mutation(
        "repair_of_a_pass_is_starved_by_reads",
        ALL,
        "await self._repair_asked(doubt, ASKED_IN_TURN_MAX)\n                report =",
        "await self._repair_asked(doubt)\n                report =",
        "reads of ledgers that stay in limbo keep the doubt from its end",
    ),
    Mutation(
        "repair_denied_damage_is_over",
        ALL,
        "outcome not in (RepairOutcome.INCOMPLETE, RepairOutcome.NEEDS_OPERATOR)\n",
        "outcome is not RepairOutcome.INCOMPLETE\n",
        "nobody learns that all copies of a damaged entry are gone",
    ),
    Mutation(
        "repair_is_requested_by_each_read",
        ALL,
        "            if is_due and len(self._asked) < ASKED_MAX:\n",
        "            if len(self._asked) < ASKED_MAX:\n",
        "a reader that retries makes the bookie repair the same ledger all the time",
    ),
    Mutation(
        "repair_rounds_without_a_pause",
        ALL,
        "        self._pause()\n        self._next_ms = max(",
        "        self._next_ms = max(",
        "ledgers that wait for their writers are tried each second for ever",
    ),
    Mutation(
        "repair_recovers_what_gets_entries",
        ALL,
        "        seen = quiet_key(report, self._storage.last_accepted_id(ledger_id))\n",
        "        seen = quiet_key(report)\n",
        "the writer of an active ledger is fenced",
    ),
    Mutation(
        "repair_recovers_everything_at_once",
        ALL,
        "        if len(self._recovering) >= RECOVERIES_MAX or ledger_id in self._recovering:\n",
        "        if ledger_id in self._recovering:\n",
        "thousands of recoveries run at the same time",
    ),
    Mutation(
        "repair_of_a_store_that_lost_its_data",
        f"{REPAIR}/adapters.py",
        "        await self._require_cookie()\n        count = 0\n",
        "        count = 0\n",
        "the doubt ends because an empty store has no ledgers",
    ),
    Mutation(
        "repair_deletes_by_a_store_that_lost_its_data",
        f"{REPAIR}/adapters.py",
        "                    await self._require_cookie()\n                    return None\n",
        "                    return None\n",
        "a ledger counts as deleted because the store has lost its metadata",
    ),
    Mutation(
        "accepted_loss_is_cleared_first",
        ACCEPT,
        "        await self._audit.append(loss)\n        await self._losses.write(loss)\n",
        "        await storage.clear_ledger(ledger_id, doubt.epoch, cleared_lac(metadata))\n"
        "        await self._audit.append(loss)\n        await self._losses.write(loss)\n",
        "a crash leaves entries given up, and no record of them",
    ),
    Mutation(
        "accepted_loss_of_an_open_ledger",
        ACCEPT,
        "        elif metadata.state is LedgerState.OPEN:\n",
        "        elif False:\n",
        "the bookie denies entries that its writer has confirmed",
    ),
    Mutation(
        "accepted_loss_in_recovery_without_a_word",
        ACCEPT,
        "metadata.state is LedgerState.IN_RECOVERY and not acceptance.is_unclosed",
        "False",
        "the recovery closes the ledger before entries that only this bookie had",
    ),
    Mutation(
        "accepted_loss_while_a_bookie_is_down",
        ACCEPT,
        "ended.outcome is RepairOutcome.INCOMPLETE and not acceptance.is_forced",
        "False",
        "entries of a bookie that restarts are given up",
    ),
    Mutation(
        "audit_line_follows_a_torn_line",
        f"{REPAIR}/audit.py",
        '                line = b"\\n" + line\n',
        "                pass\n",
        "a torn line makes the next record unreadable",
    ),
    Mutation(
        "audit_is_not_synced",
        f"{REPAIR}/audit.py",
        "            await file.datasync()\n",
        "",
        "a power loss takes the record of what was given up",
    ),
    Mutation(
        "repair_requests_a_collection_for_any_id",
        f"{REPAIR}/repairs.py",
        "            if self._storage.is_known(ledger_id):\n                self._on_deleted",
        "            if True:\n                self._on_deleted",
        "each read of an id that no ledger has lists all ledgers of the cluster",
    ),
]
