"""Mistakes in the release of ledgers that no longer name a bookie."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

CORE = "bookie_server/core"
STORAGE = "bookie_server/storage"
RELEASER = "bookie_server/service/releaser.py"

MUTATIONS = [
    Mutation(
        "release_of_a_ledger_in_recovery",
        f"{CORE}/release.py",
        "    return metadata.state is LedgerState.CLOSED and not is_named\n",
        "    return metadata.state is not LedgerState.OPEN and not is_named\n",
        "a recovery closes a ledger over entries that a bookie has deleted",
    ),
    Mutation(
        "release_looks_at_the_last_fragment",
        f"{CORE}/release.py",
        "    is_named = any(bookie_id in fragment.ensemble for fragment in metadata.fragments)\n",
        "    is_named = bookie_id in metadata.last_fragment.ensemble\n",
        "a bookie deletes the only copies of an earlier fragment",
    ),
    Mutation(
        "release_ignores_the_wait",
        f"{CORE}/release.py",
        "        and state.added_in < quiet_before\n",
        "",
        "a worker of Apache names a bookie that has deleted its copies",
    ),
    Mutation(
        "release_of_the_current_period",
        f"{CORE}/release.py",
        "        return max(0, self.current - young)\n",
        "        return max(0, self.current - young + 1)\n",
        "a ledger is released although it got an add within the wait",
    ),
    Mutation(
        "release_begins_before_adds_are_durable",
        f"{CORE}/release.py",
        "        and state.last_ticket <= durable_ticket\n",
        "",
        "an add that was sent before the release is acknowledged, and its entry is deleted",
    ),
    Mutation(
        "release_of_a_bookie_in_doubt",
        f"{CORE}/release.py",
        "        and may_say_absent(state, health)\n",
        "",
        "two releases of a ledger run at once, and a failed bookie releases ledgers",
    ),
    Mutation(
        "release_is_not_hidden",
        f"{STORAGE}/releases.py",
        "        state.is_releasing = state.is_hidden = True\n",
        "        state.is_releasing = True\n",
        "a worker lists entries that are about to be deleted",
    ),
    Mutation(
        "release_is_shown_before_it_is_durable",
        f"{STORAGE}/releases.py",
        "        state.is_releasing = False\n",
        "        state.is_releasing = state.is_hidden = False\n",
        "a worker lists entries whose deletion is under way",
    ),
    Mutation(
        "release_sets_a_fence",
        f"{STORAGE}/releases.py",
        "            flags=FLAG_RELEASE,\n",
        "",
        "a writer whose record is restored is fenced",
    ),
    Mutation(
        "released_ledger_is_not_checked",
        f"{CORE}/ledger_state.py",
        "            self.is_unverified = True\n",
        "            pass\n",
        "after a crash, an add of a released ledger is stored without a look at its metadata",
    ),
    Mutation(
        "released_ledger_is_never_deleted",
        f"{CORE}/ledger_state.py",
        "        return self.is_dropped and not self.is_released\n",
        "        return self.is_dropped\n",
        "a released ledger that is deleted later gets no fence",
    ),
    Mutation(
        "add_does_not_end_a_release",
        f"{STORAGE}/adds.py",
        "        state.end_release()\n",
        "",
        "an acknowledged add is deleted by the release that was under way",
    ),
    Mutation(
        "repeat_answers_from_released",
        f"{STORAGE}/adds.py",
        "if is_repeated and state.drop_ticket <= covered and not state.is_releasing:",
        "if is_repeated and state.drop_ticket <= covered:",
        "a repeated add is acknowledged, and its entry is deleted by the release",
    ),
    Mutation(
        "repeat_does_not_begin_the_wait_again",
        f"{STORAGE}/adds.py",
        "            state.added_in = self._health.add_period\n            self._answer",
        "            self._answer",
        "a bookie releases entries that a worker has just sent to it",
    ),
    Mutation(
        "drop_without_touch",
        RELEASER,
        "        return await self._records.touch(ledger_id, record.version)\n",
        "        return True\n",
        "a worker names a bookie that has deleted its entries",
    ),
    Mutation(
        "release_without_lock",
        RELEASER,
        "        if self._is_stopped or not await self._records.lock(ledger_id):\n",
        "        if self._is_stopped:\n",
        "a release races with each worker of Apache",
    ),
    Mutation(
        "release_keeps_its_lock",
        RELEASER,
        "        await self._records.unlock(ledger_id)\n",
        "",
        "no worker handles a ledger until the bookie ends",
    ),
    Mutation(
        "failed_release_stays_hidden",
        RELEASER,
        "            self._storage.unhide(ledger_id)\n",
        "",
        "a bookie answers unknown for ever after a conflict",
    ),
    Mutation(
        "releaser_begins_at_the_first_ledger",
        RELEASER,
        "            self._last_ledger_id = ledger_id\n",
        "",
        "only the first ledgers are ever looked up",
    ),
]
