"""Mistakes in a storage of several directories, and in the changes of its directories."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

ROUTER = "bookie_server/storage/directories/router.py"
HOMES = "bookie_server/storage/directories/homes.py"
LOSSES = "bookie_server/storage/directories/losses.py"
DENIALS = "bookie_server/storage/directories/joint_denials.py"
OPENING = "bookie_server/storage/directories/opening.py"
CHANGES = "bookie_server/service/membership/directory_changes.py"
COOKIES = "bookie_server/service/membership/cookie_check.py"
RECORD = "bookie_server/service/membership/directory_record.py"
IDENTITY = "bookie_server/core/directory_identity.py"
STORAGE = "bookie_server/storage/ledger_storage.py"

MUTATIONS = [
    Mutation(
        "directories_replay_forgotten_ledgers",
        "bookie_server/storage/open_files.py",
        "manifest.durable_upto and record.ledger_id not in states\n",
        "manifest.durable_upto and False\n",
        "a bookie never starts again after a crash, although each ledger has one home",
    ),
    Mutation(
        "directories_leave_out_records_after_the_manifest",
        "bookie_server/storage/open_files.py",
        "record.sequence <= manifest.durable_upto and record.ledger_id not in states\n",
        "record.ledger_id not in states\n",
        "a start loses the ledgers that are newer than the MANIFEST",
    ),
    Mutation(
        "directories_forget_a_home_before_the_manifest",
        STORAGE,
        "return ledger_id in self._states or self._drops.is_leaving(ledger_id)",
        "return ledger_id in self._states",
        "after a crash, two directories have the state of a ledger",
    ),
    Mutation(
        "directories_stay_a_home_for_ever",
        "bookie_server/storage/drops.py",
        "        self._leaving &= self._shared.states.changed\n",
        "",
        "a full directory refuses the adds of a ledger that it has forgotten",
    ),
    Mutation(
        "dead_directory_says_absent",
        DENIALS,
        "            elif number + 1 < len(requests):\n",
        "            elif False:\n",
        "a ledger of a failed directory is denied by another directory",
    ),
    Mutation(
        "directories_only_those_that_serve_are_asked",
        ROUTER,
        "request_all([partial(each.read, request) for each in self.directories], on_done)",
        "request_all([partial(each.read, request) for each in self._serving], on_done)",
        "a ledger of a failed directory is denied",
    ),
    Mutation(
        "directories_fence_asks_only_its_home",
        ROUTER,
        "[partial(each.read, plain) for each in self.directories if each is not home]",
        "[]",
        "a recovery of an unknown ledger gets a denial, although a directory has failed",
    ),
    Mutation(
        "directories_batch_asks_only_one",
        ROUTER,
        "            request_all([partial(each.read_batch, request) for each in self.directories],"
        " on_done)\n",
        "            self.directories[0].read_batch(request, on_done)\n",
        "a batch read of an unknown ledger gets a denial, although a directory has failed",
    ),
    Mutation(
        "directories_together_asks_only_one",
        ROUTER,
        "            if code in DENIALS and number + 1 < len(self.directories):\n",
        "            if False:\n",
        "reads that arrive together get a denial, although a directory has failed",
    ),
    Mutation(
        "directories_lac_asks_only_one",
        ROUTER,
        "            request_all([partial(each.read_lac, ledger_id) for each in self.directories],"
        " on_done)\n",
        "            self.directories[0].read_lac(ledger_id, on_done)\n",
        "a LAC of an unknown ledger is denied, although a directory has failed",
    ),
    Mutation(
        "directories_list_asks_only_one",
        ROUTER,
        "        for directory in self.directories if home is None else (home,):\n",
        "        for directory in self.directories[:1] if home is None else (home,):\n",
        "a list of an unknown ledger is empty, although a directory has failed",
    ),
    Mutation(
        "directories_failure_leaves_the_bookie_writable",
        ROUTER,
        "        is_read_only = self._is_set_read_only or self._failed_count > 0\n",
        "        is_read_only = self._is_set_read_only\n",
        "clients choose a bookie that has lost a part of its ledgers",
    ),
    Mutation(
        "directories_one_failure_ends_the_bookie",
        ROUTER,
        "        return None if self._serving else self.directories[0].failure\n",
        "        return next((each.failure for each in self.directories if each.failure), None)\n",
        "one failed device takes all ledgers out of service",
    ),
    Mutation(
        "directories_watch_only_one",
        ROUTER,
        "        ends = [each.watch_lac(ledger_id, on_change) for each in self.directories]\n",
        "        ends = [each.watch_lac(ledger_id, on_change) for each in self.directories[:1]]\n",
        "a reader that waits for a new ledger never sees its LAC",
    ),
    Mutation(
        "directories_failed_one_is_collected",
        ROUTER,
        "        return sorted([i for each in self._serving for i in await each.droppable()])\n",
        "        return sorted([i for each in self.directories for i in await each.droppable()])\n",
        "each pass tries to drop ledgers of a failed directory",
    ),
    Mutation(
        "directories_a_waiting_home_is_forgotten",
        HOMES,
        "        expected = self._expected.get(ledger_id)\n",
        "        expected = None\n",
        "two first records of a ledger go to two directories",
    ),
    Mutation(
        "directories_a_refused_home_is_remembered",
        HOMES,
        "        if not expected.requests:\n            del self._expected[ledger_id]\n",
        "",
        "the memory grows with each refused ledger",
    ),
    Mutation(
        "directories_fences_of_others_are_not_minded",
        HOMES,
        "        home.check_adds_like(self._storages)\n",
        "",
        "a late add to a ledger whose fence another directory lost or forgot is stored",
    ),
    Mutation(
        "directories_forgotten_fence_of_others",
        STORAGE,
        "                health.highest_dropped_ledger_id, theirs.highest_dropped_ledger_id\n",
        "                health.highest_dropped_ledger_id, -1\n",
        "a late add to a ledger that another directory has forgotten is stored",
    ),
    Mutation(
        "directories_lost_fence_of_others",
        STORAGE,
        "            health.check_epoch = max(health.check_epoch, min(theirs.check_epoch, 1))\n",
        "",
        "a late add to a ledger that another directory may have lost is stored",
    ),
    Mutation(
        "directories_full_one_is_chosen",
        HOMES,
        "                if (storage.is_writable if is_regular else storage.has_room)\n",
        "                if storage.has_room\n",
        "a new ledger is refused by a full directory, although another one has room",
    ),
    Mutation(
        "directories_failed_one_refuses_new_ledgers",
        HOMES,
        "        home = (serving or self._storages)[0] if number is None else"
        " self._storages[number]\n",
        "        home = self._storages[0] if number is None else self._storages[number]\n",
        "an add that has no room gets IO_ERROR in place of READ_ONLY",
    ),
    Mutation(
        "directories_doubt_stays_in_one",
        OPENING,
        "    await joined.losses.follow()\n",
        "",
        "a clear state is made for a ledger that another directory has lost",
    ),
    Mutation(
        "directories_doubt_while_serving_stays_in_one",
        LOSSES,
        "            directory.losses.on_raised = self._follow_soon\n",
        "            pass\n",
        "nobody dates a doubt that was raised while the bookie serves",
    ),
    Mutation(
        "directories_one_end_ends_all_doubt",
        LOSSES,
        "min(doubt.cleared for doubt in all_doubts)",
        "max(doubt.cleared for doubt in all_doubts)",
        "the end of a repair that was cut off counts for all directories",
    ),
    Mutation(
        "directories_later_epoch_has_an_old_transaction",
        LOSSES,
        "doubt.transaction if doubt.epoch == epoch else 0 for",
        "doubt.transaction for",
        "a ledger counts as newer than a loss that came after it",
    ),
    Mutation(
        "directories_end_above_the_epoch",
        LOSSES,
        "                await directory.end_doubt(min(epoch, directory.doubt.epoch))\n",
        "                await directory.end_doubt(epoch)\n",
        "the next loss of a directory has an epoch that has ended already",
    ),
    Mutation(
        "directories_failed_one_blocks_the_doubt",
        LOSSES,
        "        return [each for each in self._directories if each.failure is None]\n",
        "        return list(self._directories)\n",
        "an operator cannot raise the doubt while a directory has failed",
    ),
    Mutation(
        "directories_ledger_in_two_is_accepted",
        OPENING,
        "        if both:\n",
        "        if False:\n",
        "a ledger with two states answers from the wrong one",
    ),
    Mutation(
        "directories_removal_without_doubt",
        CHANGES,
        "    return replace(found, loss=found.loss or removed)\n",
        "    return found\n",
        "a bookie that has lost a directory denies the ledgers that were there",
    ),
    Mutation(
        "directories_removal_keeps_the_cookies",
        CHANGES,
        "    _write_cookies(checked.cookie, directories)\n    return checked.cookie,",
        "    return checked.cookie,",
        "the next start is refused, because the cookies differ",
    ),
    Mutation(
        "directories_added_one_has_no_doubt",
        CHANGES,
        "changes=1, doubt=doubt)",
        "changes=1)",
        "an expansion raises a doubt, or hides one",
    ),
    Mutation(
        "directories_added_one_is_unknown",
        CHANGES,
        "        KnownBookie((*found.value.directories, *news)),\n",
        "        KnownBookie(found.value.directories),\n",
        "the next start takes the new directory for that of another bookie",
    ),
    Mutation(
        "directories_any_directory_is_added",
        COOKIES,
        "            if not _holds_no_entries(directory):\n"
        "                raise _not_empty(directory, wanted.bookie_id)\n",
        "            pass\n",
        "a removed directory comes back as a new one",
    ),
    Mutation(
        "directories_added_without_request",
        COOKIES,
        "    if added and not change.may_add:\n",
        "    if False:\n",
        "an unmounted device makes a directory that nobody wanted",
    ),
    Mutation(
        "directories_removed_without_request",
        COOKIES,
        "    if set(map(Path, removed)) - set(change.without) or (added and removed):\n",
        "    if added and removed:\n",
        "a path that is missing in the settings removes a directory",
    ),
    Mutation(
        "directories_order_counts",
        COOKIES,
        "    if frozenset(found.ledger_directories) not in allowed:\n",
        "    if found.ledger_directories != wanted.ledger_directories:\n",
        "the order of the directories in the settings must never change",
    ),
    Mutation(
        "directories_one_twice",
        IDENTITY,
        "        if each is not None and each.directory_id in seen:\n",
        "        if False:\n",
        "a copy of one directory replaces another one",
    ),
    Mutation(
        "directories_fewer_than_the_record",
        RECORD,
        "        if known is not None and len(known.directories) > len(local) and not may_miss:\n",
        "        if False:\n",
        "a start with edited cookies forgets a directory without a doubt",
    ),
]
