"""Mistakes about doubt and limbo in the storage and in the service."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

GATE = "bookie_server/core/ledger_gate.py"
RULES = "bookie_server/core/doubt.py"
STATES = "bookie_server/core/ledger_state.py"
IDENTITY = "bookie_server/core/directory_identity.py"
STORAGE = "bookie_server/storage"
LIMBO = f"{STORAGE}/limbo"
RECORD = "bookie_server/service/membership/directory_record.py"
COOKIES = "bookie_server/service/membership/cookie_check.py"

MUTATIONS = [
    Mutation(
        "doubt_denies_in_limbo",
        GATE,
        "    return not is_hidden and not is_in_limbo(state, health.doubt, newer_epoch)\n",
        "    return not is_hidden\n",
        "a bookie denies entries that it has lost",
    ),
    Mutation(
        "doubt_of_a_new_ledger_is_forgotten",
        f"{STORAGE}/shared.py",
        "            epoch = rules.first_cleared_epoch(self.health.doubt)\n",
        "            epoch = self.health.doubt.epoch\n",
        "the first recovery add of a lost ledger ends its limbo",
    ),
    Mutation(
        "doubt_raise_keeps_the_check_epoch",
        f"{LIMBO}/losses.py",
        "        health.check_epoch += 1\n",
        "",
        "a writer whose fence was lost goes on",
    ),
    Mutation(
        "doubt_check_is_stamped_with_the_answer",
        f"{STORAGE}/adds.py",
        "            before, epoch = self._health.doubt, self._health.check_epoch\n"
        "            checked = await check_in_time(self._shared, ledger_id)\n",
        "            checked = await check_in_time(self._shared, ledger_id)\n"
        "            before, epoch = self._health.doubt, self._health.check_epoch\n",
        "the record from before a loss decides on an add after it",
    ),
    Mutation(
        "doubt_comparison_counts_for_the_answer",
        f"{LIMBO}/denials.py",
        "            self.take_creation(ledger_id, checked.created, before)\n",
        "            self.take_creation(ledger_id, checked.created, self._health.doubt)\n",
        "a ledger is cleared of a loss that came while its record was read",
        equivalent="a doubt that was raised meanwhile has no transaction, so it clears nothing",
    ),
    Mutation(
        "doubt_newer_ledger_by_any_transaction",
        RULES,
        "    return before.epoch if 0 < before.transaction < created else 0\n",
        "    return before.epoch if created else 0\n",
        "a ledger from before the loss is clear",
    ),
    Mutation(
        "doubt_is_not_in_the_manifest",
        f"{STORAGE}/files/keeper.py",
        "            doubt=self._health.doubt,\n",
        "",
        "a doubt that was raised while serving ends with the process",
    ),
    Mutation(
        "doubt_cleared_epoch_is_not_stored",
        STATES,
        "            cleared_epoch = state.cleared_epoch\n",
        "            cleared_epoch = 0\n",
        "cleared ledgers return to limbo after a start",
    ),
    Mutation(
        "doubt_downgraded_states_are_in_limbo",
        f"{STORAGE}/files/manifest.py",
        "        return decode_states(data, name, self.current.doubt.cleared)\n",
        "        return decode_states(data, name)\n",
        "after a downgrade and an upgrade, all ledgers are in limbo for ever",
    ),
    Mutation(
        "doubt_limbo_record_is_not_replayed",
        f"{STORAGE}/open_files.py",
        "        state.cleared_epoch = max(state.cleared_epoch, record.epoch)\n",
        "        pass\n",
        "a ledger that was cleared is in limbo after a crash",
    ),
    Mutation(
        "doubt_cleared_epoch_falls",
        f"{LIMBO}/repaired.py",
        "        state.cleared_epoch = max(state.cleared_epoch, epoch)\n",
        "        state.cleared_epoch = epoch\n",
        "the end of an old repair undoes a newer one",
    ),
    Mutation(
        "doubt_recovery_adds_are_not_synced",
        f"{STORAGE}/ledger_storage.py",
        "record.kind is JournalRecordKind.RUN and not record.is_recovery",
        "record.kind is JournalRecordKind.RUN",
        "a power loss takes the copy that a re-replication has listed",
    ),
    Mutation(
        "doubt_repaired_entry_sets_a_key_of_zeros",
        f"{STORAGE}/adds.py",
        "        key = None if is_keyless else request.master_key\n",
        "        key = request.master_key\n",
        "after a repair, each client is unauthorized",
    ),
    Mutation(
        "doubt_replayed_repair_sets_a_key_of_zeros",
        f"{STORAGE}/open_files.py",
        "if state.master_key is None and not is_keyless:",
        "if state.master_key is None:",
        "after a repair and a crash, each client is unauthorized",
    ),
    Mutation(
        "doubt_without_a_new_epoch_after_a_lost_run",
        f"{STORAGE}/boot.py",
        "        if taken.loss:\n            self.losses.append(taken.loss)\n",
        "",
        "after a power loss, a run without syncs denies what it acknowledged",
    ),
    Mutation(
        "doubt_each_start_finds_the_same_loss",
        f"{STORAGE}/boot.py",
        "        if not entry.has_damage or not self.shared.store.current.doubt.epoch:\n",
        "        if True:\n",
        "a damaged file begins a doubt at each start",
    ),
    Mutation(
        "doubt_damage_of_older_releases_is_ignored",
        f"{STORAGE}/boot.py",
        "        if not entry.has_damage or not self.shared.store.current.doubt.epoch:\n",
        "        if not entry.has_damage:\n",
        "after an upgrade, entries in a damaged file are denied",
    ),
    Mutation(
        "doubt_tombstones_are_above_the_next_record",
        f"{STORAGE}/boot.py",
        "seen = max([synced, manifest.durable_upto, *finished, *tombstones])",
        "seen = max([synced, manifest.durable_upto, *finished])",
        "after a power loss, new records count as deleted",
    ),
    Mutation(
        "doubt_lost_record_of_a_rebuild_is_ignored",
        f"{STORAGE}/files/index_rebuilds.py",
        "                self.on_lost_record(file)\n",
        "                pass\n",
        "a record that is lost while the bookie serves is denied",
    ),
    Mutation(
        "doubt_damaged_files_stay_for_ever",
        f"{STORAGE}/compaction/cycle.py",
        "        wanted += [each for each in damaged if each not in wanted]\n",
        "",
        "a damaged file is never compacted, and hides further losses",
    ),
    Mutation(
        "doubt_damaged_files_are_freed_in_doubt",
        GATE,
        "        return self.files_in_doubt | self.damaged_files\n",
        "        return self.files_in_doubt\n",
        "a damaged file is freed before its entries are repaired",
    ),
    Mutation(
        "doubt_missing_files_are_listed_for_ever",
        f"{STORAGE}/files/keeper.py",
        "        return [] if self._health.doubt.is_over else self._missing\n",
        "        return self._missing\n",
        "a missing file keeps the bookie from forgetting tombstones for ever",
    ),
    Mutation(
        "doubt_older_copy_uses_an_epoch_again",
        f"{STORAGE}/boot.py",
        "health.doubt.raised(self.shared.found.doubt_epoch)",
        "health.doubt.raised()",
        "a comparison of epochs shows no loss",
    ),
    Mutation(
        "doubt_lost_directory_uses_an_epoch_again",
        IDENTITY,
        "        doubt=NO_DOUBT.raised(found.doubt_epoch),\n",
        "        doubt=NO_DOUBT.raised(),\n",
        "a comparison of epochs shows no loss",
    ),
    Mutation(
        "doubt_older_copy_is_the_newest",
        RECORD,
        'found_outside(known, older_copy(path, identity, known) if is_older and known else "")',
        "found_outside(known)",
        "an older copy denies what it lacks",
    ),
    Mutation(
        "doubt_dated_by_an_earlier_write",
        RECORD,
        "if is_open and written.doubt_epoch == doubt.epoch:",
        "if is_open:",
        "a ledger that was created before the loss counts as newer",
        equivalent="the record is written before, or the last write failed and nothing is dated",
    ),
    Mutation(
        "doubt_is_dated_once",
        RECORD,
        "        return all(doubt.epoch == 0 or doubt.transaction > 0 for doubt in doubts)\n",
        "        return True\n",
        "a store that was away for a moment leaves the doubt without a date",
    ),
    Mutation(
        "doubt_lost_directory_without_a_request",
        COOKIES,
        "        if change.may_be_lost and is_same and all(map(_is_lost, directories)):\n",
        "        if is_same and all(map(_is_lost, directories)):\n",
        "a bookie whose disk is not mounted begins with an empty directory",
    ),
    Mutation(
        "doubt_cookie_before_doubt",
        COOKIES,
        "    return not path.exists() or decode_manifest(path.read_bytes()).doubt.epoch > 0\n",
        "    return True\n",
        "an empty directory counts as whole",
    ),
    Mutation(
        "doubt_released_ledger_needs_no_repair",
        f"{LIMBO}/repaired.py",
        "is_in_limbo(state, doubt) and not state.is_deleted\n",
        "is_in_limbo(state, doubt) and not state.is_dropped\n",
        "a pass ends the doubt without the entries of a ledger that was released before",
    ),
    Mutation(
        "doubt_released_ledger_is_forgotten_in_limbo",
        f"{STORAGE}/drops.py",
        "            doubt=self._shared.health.doubt,\n",
        "",
        "the bookie denies lost entries of a ledger that was released before",
    ),
]
