"""Mistakes in the recognition of older copies, and in the commands for cookies."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

IDENTITY = "bookie_server/core/directory_identity.py"
RECORD = "bookie_server/service/membership/directory_record.py"
COOKIES = "bookie_server/tools/cookies.py"
KNOWN = "ledgerlog_spark/metadata/known_bookies.py"
STORAGE = "bookie_server/storage"

MUTATIONS = [
    Mutation(
        "identity_counter_per_start",
        IDENTITY,
        "is_newest=local.changes >= each.changes",
        "is_newest=local.starts >= each.starts",
        "a copy from the same run, months old, has the number of the newest directory",
    ),
    Mutation(
        "identity_ahead_is_refused",
        IDENTITY,
        "is_newest=local.changes >= each.changes",
        "is_newest=local.changes == each.changes",
        "a crash between the MANIFEST and the record costs the bookie",
    ),
    Mutation(
        "identity_moved_copy_with_equal_counter",
        IDENTITY,
        "is_newest=local.changes > each.changes",
        "is_newest=local.changes >= each.changes",
        "a copy whose fix was cut off replaces its original, which was used since",
    ),
    Mutation(
        "identity_any_id",
        IDENTITY,
        "    return DirectoryFinding.SWAPPED\n",
        "    return DirectoryFinding.OWN\n",
        "a bookie starts with the directory of another bookie",
    ),
    Mutation(
        "identity_without_counter_is_accepted",
        IDENTITY,
        "    if local.changes == 0:\n        return DirectoryFinding.UNCOUNTED\n",
        "    if local.changes == 0:\n        return DirectoryFinding.OWN\n",
        "a copy from before an upgrade is accepted",
    ),
    Mutation(
        "identity_retired_starts",
        IDENTITY,
        "    if known is not None and known.is_retired:\n        return DirectoryFinding.RETIRED\n",
        "",
        "a bookie that was taken out of service starts without a cookie",
    ),
    Mutation(
        "identity_record_before_the_manifest",
        f"{STORAGE}/ledger_storage.py",
        "        return identity_of(self._shared.store.current)\n",
        "        current = self._shared.store.current\n"
        "        return DirectoryIdentity(\n"
        "            current.directory_id, self._shared.starts, self._shared.changes,\n"
        "            current.previous_id,\n"
        "        )\n",
        "the newest directory is refused after a crash",
    ),
    Mutation(
        "identity_start_raises_nothing",
        f"{STORAGE}/ledger_storage.py",
        "shared.changes = max(before.changes, found.changes) + 1",
        "shared.changes = max(before.changes, found.changes)",
        "a copy from before the start is accepted",
    ),
    Mutation(
        "identity_clean_stop_raises_nothing",
        f"{STORAGE}/ledger_storage.py",
        "        self._shared.changes += 1\n        await self._keeper.commit(None, keep_open",
        "        await self._keeper.commit(None, keep_open",
        "a copy from the last minute before a clean stop is accepted",
    ),
    Mutation(
        "identity_move_forgets_the_id",
        f"{STORAGE}/files/keeper.py",
        "previous_id=before.directory_id if is_moved else before.previous_id",
        "previous_id=before.previous_id",
        "a directory with another path is taken for another directory",
    ),
    Mutation(
        "identity_is_kept_after_the_downgrade",
        "bookie_server/tools/versions.py",
        "        await shared.store.keep_identity(manifest)\n",
        "",
        "after a downgrade and an upgrade, the bookie is refused",
    ),
    Mutation(
        "identity_file_before_the_manifest",
        f"{STORAGE}/files/manifest.py",
        "if decode_version(data) >= RUN_SINCE or IDENTITY_NAME not in names:",
        "if IDENTITY_NAME not in names:",
        "a file that a cut downgrade left makes the newest directory an older copy",
    ),
    Mutation(
        "identity_file_is_removed_too_early",
        f"{STORAGE}/files/manifest.py",
        "kept = () if self._base_bytes is None else (IDENTITY_NAME, IDENTITY_NEW_NAME)",
        "kept = (IDENTITY_NAME, IDENTITY_NEW_NAME)",
        "a crash in the first start after a downgrade costs the bookie",
    ),
    Mutation(
        "identity_record_is_overwritten",
        RECORD,
        "            self._is_stopped = True\n            _logger.error(",
        "            found = await self._known.read(self._bookie_id)\n"
        "            self._version = None if found is None else found.version\n"
        "            _logger.error(",
        "a running bookie brings back the record that an operator retired",
    ),
    Mutation(
        "identity_counter_runs_ahead",
        RECORD,
        "if records != self._records[number] and storage.identity == self._written[number]:",
        "if records != self._records[number]:",
        "while the store is away, each minute makes a MANIFEST, and older copies look newer",
    ),
    Mutation(
        "identity_idle_bookie_commits",
        RECORD,
        "if records != self._records[number] and storage.identity == self._written[number]:",
        "if storage.identity == self._written[number]:",
        "an idle bookie writes a MANIFEST and a node each minute",
    ),
    Mutation(
        "identity_records_of_the_commit_are_counted",
        RECORD,
        "                self._records[number] = records\n"
        "                await storage.count_change()\n",
        "                await storage.count_change()\n"
        "                self._records[number] = storage.records_stored\n",
        "a copy from the commit of the counter is accepted after more writes",
    ),
    Mutation(
        "identity_overtaken_start_is_not_compared",
        RECORD,
        "            self._refuse_older(self._compared(local, known, may_miss=change is not None),"
        " known)\n",
        "",
        "two processes with one bookie id, and the last one wins",
    ),
    Mutation(
        "identity_any_record_is_ours_after_a_lost_answer",
        "ledgerlog_spark/metadata/settled_writes.py",
        "if attempts.lost is None or found is None or found.value != data:",
        "if attempts.lost is None or found is None:",
        "a bookie continues from the record of another process",
    ),
    Mutation(
        "identity_record_of_another_process_is_ours",
        "ledgerlog_spark/metadata/settled_writes.py",
        "if attempts.lost is None or found is None or found.value != data:",
        "if found is None or found.value != data:",
        "two processes that write the same record both win",
        equivalent="the same record has the same counters of the same directory",
    ),
    Mutation(
        "cookie_create_for_an_older_copy",
        COOKIES,
        "            _require_newest(str(each), identities[-1], stored)\n",
        "",
        "an older copy replaces a bookie that was deleted",
    ),
    Mutation(
        "cookie_fix_for_an_older_copy",
        COOKIES,
        "        if known is not None and finding not in ACCEPTED:\n            local",
        "        if known is None and finding not in ACCEPTED:\n            local",
        "a fix makes an older copy the newest directory",
    ),
    Mutation(
        "cookie_fix_raises_nothing",
        COOKIES,
        "        changes=before.changes + (not was_interrupted),\n",
        "        changes=before.changes,\n",
        "an interrupted fix cannot be distinguished from a run of the original directory",
    ),
    Mutation(
        "cookie_fix_keeps_the_id",
        COOKIES,
        "        directory_id=shared.files.random_bytes(8).hex(),\n",
        "        directory_id=before.directory_id,\n",
        "a copy and its original have one id",
    ),
    Mutation(
        "cookie_fix_of_a_moved_run",
        COOKIES,
        "    require_own_directory(directory.shared)\n",
        "",
        "the entries in the journal of the original are lost",
    ),
    Mutation(
        "cookie_before_manifest",
        COOKIES,
        "        if directory.shared.is_moved:\n"
        "            await _move(directory, known)\n"
        '            changed.append("MANIFEST")\n'
        "        if cookie != wanted:\n"
        "            await _write_cookie(directory.shared.files, wanted.encode())\n"
        "            changed.append(COOKIE_NAME)\n",
        "        if cookie != wanted:\n"
        "            await _write_cookie(directory.shared.files, wanted.encode())\n"
        "            changed.append(COOKIE_NAME)\n"
        "        if directory.shared.is_moved:\n"
        "            await _move(directory, known)\n"
        '            changed.append("MANIFEST")\n',
        "the order of the parts is that of the documentation",
    ),
    Mutation(
        "cookie_delete_frees_the_id",
        COOKIES,
        "replace(stored.known or KnownBookie(()), is_retired=True)",
        "replace(stored.known or KnownBookie(()), is_retired=False)",
        "a bookie that was taken out of service has a record as if it were in service",
    ),
    Mutation(
        "cookie_delete_of_a_running_bookie",
        COOKIES,
        "    require_down(stored)\n    if stored.cookie_version",
        "    if stored.cookie_version",
        "a running bookie loses its cookie",
    ),
    Mutation(
        "cookie_of_a_known_bookie_is_new",
        "bookie_server/service/membership/cookie_check.py",
        "    if await known.read(bookie_id) is not None:\n"
        "        raise _wiped(directories[0], bookie_id)\n",
        "",
        "an empty directory starts with the id of a bookie that was deleted",
    ),
    Mutation(
        "identity_record_without_directories_is_another_bookie",
        IDENTITY,
        "    if known is None or not known.directories:\n",
        "    if known is None:\n",
        "a deleted bookie of an older release never comes back",
    ),
    Mutation(
        "identity_without_counters_is_recorded",
        IDENTITY,
        "            if each.changes\n",
        "",
        "a record without the id of a directory, which no program can read",
    ),
    Mutation(
        "cookie_fix_after_a_cut_raises_again",
        COOKIES,
        "        changes=before.changes + (not was_interrupted),\n",
        "        changes=before.changes + 1,\n",
        "a copy that is moved twice replaces its original, which was used since",
    ),
    Mutation(
        "cookie_fix_after_a_cut_forgets_the_recorded_id",
        COOKIES,
        "        previous_id=before.previous_id if was_interrupted else before.directory_id,\n",
        "        previous_id=before.directory_id,\n",
        "a directory that is moved again after a cut is taken for another directory",
    ),
    Mutation(
        "cookie_create_leaves_the_bookie_retired",
        COOKIES,
        "    if any(identity.changes == 0 for identity in identities) and stored.known is None:\n",
        "    if any(identity.changes == 0 for identity in identities):\n",
        "a bookie of an older release has its cookie again, and does not start",
    ),
    # Invented by a reviewer who had not written the code.
    Mutation(
        "identity_newest_of_any_directory",
        IDENTITY,
        "            if each.directory_id == directory_id:\n",
        "            if directory_id:\n",
        "another directory with a larger counter is accepted",
    ),
    Mutation(
        "identity_fences_are_not_counted",
        f"{STORAGE}/ledger_storage.py",
        "        return self.counters.journal_records\n",
        "        return self.counters.adds\n",
        "a copy from before a fence is accepted",
    ),
    Mutation(
        "identity_counter_runs_ahead_without_room",
        f"{STORAGE}/ledger_storage.py",
        "        if self._shared.changes == self._shared.store.current.changes:\n"
        "            self._shared.changes += 1\n",
        "        self._shared.changes += 1\n",
        "on a full device, each interval raises the counter further",
    ),
    Mutation(
        "identity_stop_writes_no_record",
        RECORD,
        "                await self.write_record()\n        except TimeoutError",
        "                pass\n        except TimeoutError",
        "a copy from before a clean stop is accepted until the next start",
    ),
    Mutation(
        "identity_record_is_not_retried",
        RECORD,
        "            await storage.count_change()\n        await self.write_record()\n",
        "            await storage.count_change()\n            await self.write_record()\n",
        "a rise that the store missed waits until the next rise, which waits for the store",
    ),
    Mutation(
        "identity_kept_without_previous_id",
        "bookie_server/core/kept_identity.py",
        'KEYS = ("directory_id", "path", "starts", "changes", "previous_id")',
        'KEYS = ("directory_id", "path", "starts", "changes")',
        "a downgrade between the two writes of a move costs the bookie",
    ),
    Mutation(
        "identity_read_without_sync",
        KNOWN,
        "        await self._tree.sync(path)\n",
        "",
        "a server of ZooKeeper that is behind has the record that an older copy matches",
    ),
    Mutation(
        "cookie_deleted_before_the_record",
        KNOWN,
        "            operations.append(znodes.DeleteNode(cookie_path, cookie_version))\n",
        "            await self._tree.delete(cookie_path, cookie_version)\n",
        "a cookie is deleted although the record was changed meanwhile",
    ),
    Mutation(
        "cookie_fix_of_a_running_bookie",
        COOKIES,
        "        require_down(stored)\n        if cookie.instance_id",
        "        if cookie.instance_id",
        "the record of a bookie that runs elsewhere is replaced",
    ),
    Mutation(
        "record_is_given_up_after_any_change",
        RECORD,
        "        else:\n            self._version = None if found is None else found.version\n",
        "        else:\n            self._is_stopped = True\n",
        "after an operator has changed the record, a later doubt is never dated",
    ),
    Mutation(
        "record_of_a_newer_copy_is_replaced",
        RECORD,
        "            self._refuse_older(self._compared(local, known, may_miss=False), known)\n",
        "            self._compared(local, known, may_miss=False)\n",
        "a process with an older copy takes the record of the process with the newest one",
    ),
    Mutation(
        "copies_that_start_together_serve_both",
        RECORD,
        "                    raise error\n            try:\n",
        "                    pass\n            try:\n",
        "two processes serve with the same directory, each without the entries of the other",
    ),
    Mutation(
        "copies_compare_the_first_directory",
        "bookie_server/core/directory_identity.py",
        "    if counters.get(local.directory_id) != local.changes:\n",
        "    if list(counters.values())[:1] != [local.changes]:\n",
        "two processes serve with the same second directory",
    ),
    Mutation(
        "copies_are_found_only_after_a_conflict",
        RECORD,
        "                if error := equal_copy(path, self._bookie_id, identity, known):\n",
        "                if attempt and (\n"
        "                    error := equal_copy(path, self._bookie_id, identity, known)\n"
        "                ):\n",
        "a copy that wrote the record between the check and the start serves too",
    ),
    Mutation(
        "a_wait_ignores_read_only_bookies",
        "ledgerlog_spark/metadata/registration.py",
        "            for place in places:\n                stat = await",
        "            for place in places[:1]:\n                stat = await",
        "a copy of the directory of a read-only bookie counts as the newest directory",
    ),
]
