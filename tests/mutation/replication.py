"""Mistakes in the stores of auto-recovery, and in listings and walks of ledgers."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

METADATA = "ledgerlog_spark/metadata"
STORES = f"{METADATA}/replication"
WRITES = f"{METADATA}/settled_writes.py"
NOTES = "ledgerlog_spark/wire/repair_notes.py"
NODES = "ledgerlog_spark/wire/repair_nodes.py"
APACHE = "ledgerlog_spark/wire/underreplication.py"
LISTING = f"{METADATA}/ledgers/listing.py"
STORE = f"{METADATA}/ledgers/store.py"
IDS = f"{METADATA}/ledgers/ids.py"

_MARKS = [
    Mutation(
        "re_mark_is_silent",
        WRITES,
        "            return await tree.set(path, changed(found.value), found.version)\n",
        "            new = changed(found.value)\n"
        "            same = new.split(b'ctime')[0] == found.value.split(b'ctime')[0]\n"
        "            return found.version if same else await tree.set(path, new, found.version)\n",
        "a bookie that was lost once more is not marked, and its mark is deleted",
    ),
    Mutation(
        "mark_overwrites_other_marks",
        f"{STORES}/marks.py",
        "before = MarkData(()) if data is None else decoded(path, MarkData.decode, data)",
        "before = MarkData(())",
        "the bookies of an earlier mark are forgotten",
    ),
    Mutation(
        "mark_ignores_version",
        WRITES,
        "return await tree.set(path, changed(found.value), found.version)",
        "return await tree.set(path, changed(found.value), None)",
        "of two marks made at the same time, one is lost",
    ),
    Mutation(
        "mark_deleted_on_new_session",
        f"{STORES}/guarded.py",
        "await tree.transact([*locks.checks(lock), *checks, deletion])",
        "await tree.transact([*checks, deletion])",
        "a worker whose session ended deletes the mark that followed",
    ),
    Mutation(
        "mark_deleted_over_a_new_record",
        f"{STORES}/guarded.py",
        "await tree.transact([*locks.checks(lock), *checks, deletion])",
        "await tree.transact([*locks.checks(lock), deletion])",
        "the deletion of a mark does not check the record",
    ),
    Mutation(
        "mark_deleted_at_a_number",
        f"{STORES}/guarded.py",
        "            if stat.version != version:\n                return False\n",
        "",
        "a new mark with the number of the old one is deleted",
    ),
    Mutation(
        "mark_deleted_at_any_version",
        f"{STORES}/guarded.py",
        """            if stat.version != version:
                return False
            try:
                deletion = znodes.DeleteNode(path, version)
""",
        """            try:
                deletion = znodes.DeleteNode(path, None)
""",
        "a mark that was made during the work is deleted with the old one",
    ),
    Mutation(
        "lock_without_guard",
        f"{STORES}/locks.py",
        "            znodes.CheckNode(self._guard(lock.session_id), FIRST_VERSION),\n"
        "            znodes.CheckNode(self._root",
        "            znodes.CheckNode(self._root",
        "a lock that another session took counts as the own one",
    ),
    Mutation(
        "lock_is_not_checked",
        f"{STORES}/locks.py",
        "            znodes.CheckNode(self._root + lock_path(lock.ledger_id), FIRST_VERSION),\n",
        "",
        "a mark is deleted without its lock",
    ),
    Mutation(
        "lock_of_any_session_is_ours",
        f"{STORES}/locks.py",
        "return HeldLock(ledger_id, session_id) if owner == session_id else None",
        "return HeldLock(ledger_id, session_id)",
        "two workers take one ledger",
    ),
    Mutation(
        "deletion_with_a_lost_answer_failed",
        f"{STORES}/guarded.py",
        "                return attempts.lost is not None\n",
        "                return False\n",
        "a worker abandons a ledger that it healed",
    ),
    Mutation(
        "directories_of_marks_stay",
        f"{STORES}/guarded.py",
        "        while directory != top:\n",
        "        while False:\n",
        "the queue keeps four directories for each ledger that was ever marked",
    ),
    Mutation(
        "mark_loses_its_race_with_a_cleanup",
        WRITES,
        "    except (znodes.NodeExistsError, znodes.NodeMissingError, MetadataVersionError):\n"
        "        await tree.sync(path)",
        "    except (znodes.NodeExistsError, MetadataVersionError):\n        await tree.sync(path)",
        "a mark fails because another process deletes an empty directory",
        equivalent="`create` makes its parents, and the tests do not delete a directory between "
        "these requests",
    ),
    Mutation(
        "walk_of_marks_lists_directories",
        f"{STORES}/marks.py",
        "return ledger_id if name in names else None",
        "return ledger_id",
        "a directory that a cleanup left is a marked ledger",
    ),
    Mutation(
        "walk_of_marks_skips_a_directory",
        f"{STORES}/marks.py",
        "first >> 16 * (3 - depth) >= after >> 16 * (3 - depth)",
        "first >> 16 * (3 - depth) > after >> 16 * (3 - depth)",
        "a walk that continues misses the ledgers of the same directory",
    ),
    Mutation(
        "layout_of_marks_is_not_checked",
        f"{STORES}/marks.py",
        "        decoded(path, check_layout, (await self._tree.get(path)).value)\n",
        "",
        "marks are written in a layout that only a later release of Apache reads",
    ),
    Mutation(
        "time_of_a_mark_is_no_number",
        APACHE,
        'lines.append(f"ctime: {self.created_ms}\\n")',
        "lines.append(f'ctime: \"{self.created_ms}\"\\n')",
        "Apache's workers cannot read a mark",
    ),
    Mutation(
        "full_mark_grows",
        APACHE,
        "return MarkData(union[:REPLICAS_MAX], created_ms)",
        "return MarkData(union, created_ms)",
        "a mark has more bookies than a reader accepts",
    ),
]

_SETTINGS = [
    Mutation(
        "switch_reads_a_stale_replica",
        f"{STORES}/switch.py",
        "return await znodes.synced_stat(self._tree, self._disabled) is None",
        "return await self._tree.stat(self._disabled) is None",
        "a worker begins after an operator disabled auto-recovery",
    ),
    Mutation(
        "audit_now_changes_nothing",
        f"{STORES}/switch.py",
        "await self.set_lost_bookie_delay(DELAY_SECONDS if found is None else found.value)",
        "await self.initialize_delay()",
        "an operator's request for an audit is lost",
    ),
    Mutation(
        "negative_delay_is_kept",
        APACHE,
        "    return max(0, int(data))\n",
        "    return int(data)\n",
        "the auditor waits a negative time",
    ),
    Mutation(
        "damaged_position_ends_the_walk",
        f"{STORES}/check_times.py",
        "            with contextlib.suppress(WireFormatError):\n",
        "            with contextlib.nullcontext():\n",
        "no auditor continues after a damaged node",
    ),
]

_ELECTION = [
    Mutation(
        "every_vote_leads",
        f"{STORES}/election.py",
        "        if not earlier:\n",
        "        if True:\n",
        "two auditors work at the same time",
    ),
    Mutation(
        "vote_of_an_old_session_leads",
        f"{STORES}/election.py",
        "            and self._tree.session_id == self._session_id\n",
        "",
        "an auditor publishes after its session ended",
    ),
    Mutation(
        "stale_auditor_publishes",
        f"{STORES}/election.py",
        """            and not self.lost.is_set()
            and self._tree.is_connected
            and self._tree.session_id == self._session_id
""",
        "",
        "an auditor whose session ended publishes beside its successor",
    ),
    Mutation(
        "candidate_waits_for_the_first_vote",
        f"{STORES}/election.py",
        'before = f"{self._directory}/{earlier[-1]}"',
        'before = f"{self._directory}/{earlier[0]}"',
        "all candidates wake up when the auditor ends",
        equivalent="each of them looks again, so the same one leads",
    ),
    Mutation(
        "forgotten_vote_is_waited_for",
        f"{STORES}/election.py",
        "        if await is_own(self._tree, before, self._data):\n",
        "        if False:\n",
        "a candidate whose answer was lost waits for its own first vote, for ever",
    ),
    Mutation(
        "lost_answer_of_a_vote_votes_again",
        f"{STORES}/election.py",
        "            if name is not None:\n                return name\n",
        "",
        "a candidate votes twice",
        equivalent="`_look` deletes the first vote, which has the same session and candidate",
    ),
    Mutation(
        "lost_session_is_not_noticed",
        f"{STORES}/election.py",
        "            self._tree.watch_session(self._lose),\n",
        "",
        "an auditor is not told that it lost its session",
        equivalent="the watch of the vote fires too, because the session's end deletes the vote",
    ),
    Mutation(
        "own_vote_is_not_watched",
        f"{STORES}/election.py",
        "            self._tree.watch(self._path, self._changed.set),\n",
        "",
        "an auditor whose vote was deleted goes on beside its successor",
    ),
    Mutation(
        "current_auditor_is_the_newest",
        f"{STORES}/election.py",
        "    return [name for _, name in sorted(votes)]\n",
        "    return [name for _, name in sorted(votes, reverse=True)]\n",
        "the newest candidate leads",
    ),
]

_NOTES = [
    Mutation(
        "note_replaces_holes",
        f"{STORES}/notes.py",
        "note if data is None else self._decoded(path, data).merged(note)",
        "note",
        "a hole that another process reported is forgotten",
    ),
    Mutation(
        "note_deleted_at_any_version",
        f"{STORES}/notes.py",
        "is_deleted = await delete_unlocked(self._tree, path, version)",
        "is_deleted = await delete_unlocked(self._tree, path, None)  # type: ignore[arg-type]",
        "a hole that was reported during the work is deleted",
    ),
    Mutation(
        "note_lock_is_ignored",
        f"{STORES}/notes.py",
        "        if lock is None:\n",
        "        if True:\n",
        "a worker whose session ended deletes the hole that followed",
    ),
    Mutation(
        "walk_of_notes_skips_a_group",
        f"{STORES}/notes.py",
        "int(group, 16) < after >> GROUP_BITS",
        "int(group, 16) <= after >> GROUP_BITS",
        "a walk that continues misses the notes of the same group",
    ),
    Mutation(
        "walk_of_notes_is_in_order_of_names",
        f"{STORES}/notes.py",
        "for ledger_id in sorted(int(name) for name in names if _LEDGER.fullmatch(name)):",
        "for ledger_id in (int(name) for name in names if _LEDGER.fullmatch(name)):",
        "a walk that continues after a ledger misses smaller ids",
    ),
    Mutation(
        "holes_of_ranges_shrink",
        NOTES,
        "    if not before or not ranges:\n        return ()\n",
        "",
        "a hole of a whole fragment becomes a hole of some entries",
    ),
    Mutation(
        "too_many_ranges_are_cut",
        NOTES,
        "return tuple(joined) if len(joined) <= RANGES_MAX else ()",
        "return tuple(joined[:RANGES_MAX])",
        "the last entries of a hole are forgotten",
    ),
    Mutation(
        "too_many_holes_are_cut",
        NOTES,
        "        if len(joined) <= HOLES_MAX:\n",
        "        joined = dict(sorted(joined.items())[:HOLES_MAX])\n"
        "        if len(joined) <= HOLES_MAX:\n",
        "holes beyond the limit are forgotten",
    ),
    Mutation(
        "unknown_fields_of_a_note_are_dropped",
        NODES,
        "        if not isinstance(value, dict) or value.keys() != types.keys():\n",
        "        value = {name: value[name] for name in types}\n"
        "        if not isinstance(value, dict) or value.keys() != types.keys():\n",
        "a note of a later release is written back without its new fields",
    ),
    Mutation(
        "size_of_a_note_is_unbounded",
        NODES,
        "    if len(data) > SIZE_BYTES_MAX:\n        raise WireFormatError(\n"
        '            f"a note has',
        '    if False:\n        raise WireFormatError(\n            f"a note has',
        "a huge node is parsed",
    ),
    Mutation(
        "report_of_another_session_is_replaced",
        f"{STORES}/reports.py",
        "if stat is not None and stat.owner == self._tree.session_id:",
        "if stat is not None:",
        "a report ends with the session of another process",
    ),
]

_IDENTITIES = [
    Mutation(
        "no_cookie_check",
        STORE,
        "            operations.extend(await self._identities.checks(identity))\n",
        "            pass\n",
        "a bookie that was wiped meanwhile is named for entries that it lost",
    ),
    Mutation(
        "cookie_made_again",
        f"{STORES}/identities.py",
        "if found is None or found[0] != identity:",
        "if found is None or (found[0].cookie.number, found[0].directories) != (\n"
        "            identity.cookie.number, identity.directories\n"
        "        ):",
        "a cookie that was deleted and made again counts as the first one",
    ),
    Mutation(
        "doubt_of_a_target_does_not_count",
        f"{STORES}/identities.py",
        "(each.directory_id, each.doubt_epoch) for each in known.directories",
        "(each.directory_id, 0) for each in known.directories",
        "a bookie that may have lost the copies is named for them",
    ),
    Mutation(
        "directory_of_a_target_does_not_count",
        f"{STORES}/identities.py",
        "(each.directory_id, each.doubt_epoch) for each in known.directories",
        '("", each.doubt_epoch) for each in known.directories',
        "a bookie with another directory is named for the copies of the first one",
    ),
    Mutation(
        "any_next_version_is_ours",
        STORE,
        "if is_repeat and is_next and found.value == data:",
        "if is_repeat:",
        "the write of another client counts as the own one after a lost answer",
    ),
    Mutation(
        "replacement_with_a_lost_answer_conflicts",
        STORE,
        "if is_repeat and is_next and found.value == data:",
        "if False:",
        "a worker copies a ledger again that it has healed",
    ),
    Mutation(
        "lost_replacement_is_definite",
        STORE,
        'if lost is None or "ledger_id" in error.fields:',
        "if True:",
        "a write that may have happened counts as failed after the error of the next attempt",
    ),
    Mutation(
        "vacated_with_another_cookie",
        f"{STORES}/vacations.py",
        "            if stat is None or stat.version != expected:\n"
        "                raise _changed(node, bookie_id)\n",
        "            del stat, expected\n",
        "the cookie of a bookie that was formatted again is deleted",
    ),
    Mutation(
        "cookie_deleted_under_a_returner",
        f"{STORES}/vacations.py",
        "znodes.SetNode(path, encode_note(vacation), version),",
        "znodes.SetNode(path, encode_note(vacation), None),",
        "the cookie of a bookie that has come back is deleted",
    ),
    Mutation(
        "vacated_bookie_is_not_retired",
        f"{STORES}/vacations.py",
        "            operations.append(record)\n",
        "",
        "a bookie that was vacated starts again with its old directories",
    ),
]

_UPKEEP = [
    Mutation(
        "pass_goes_on_in_a_new_session",
        "ledgerlog_spark/upkeep/upkeep.py",
        "    if leases.session_id != session_id:\n",
        "    if False:\n",
        "two processes run upkeep of the same logs",
    ),
]

_LEDGERS = [
    Mutation(
        "range_excludes_its_last_id",
        LISTING,
        "return first <= min(last, LEDGER_ID_MAX) and first + size - 1 > after",
        "return first < min(last, LEDGER_ID_MAX) and first + size - 1 > after",
        "a range that ends with the first id of a directory misses it",
    ),
    Mutation(
        "range_skips_the_directory_of_after",
        LISTING,
        "and first + size - 1 > after",
        "and first > after",
        "a walk that continues misses the ledgers of the same directory",
    ),
    Mutation(
        "deleted_ledger_ends_a_walk",
        f"{METADATA}/ledgers/walk.py",
        "        except LedgerNotFoundError:\n            return None\n",
        "        except ZeroDivisionError:\n            return None\n",
        "an audit ends when a ledger is deleted",
    ),
    Mutation(
        "damaged_record_ends_a_walk",
        f"{METADATA}/ledgers/walk.py",
        "        except MetadataFormatError as error:\n"
        "            return WalkedLedger(ledger_id, error)\n",
        "",
        "one damaged record stops the auditor",
    ),
    Mutation(
        "walk_is_not_in_order",
        f"{METADATA}/ordered.py",
        "while running and (running[0].done() or len(running) >= depth):",
        "while running and (running[-1].done() or len(running) >= depth):",
        "results come later than they could",
        equivalent="the results are still in order, and the number of requests has the same limit",
    ),
    Mutation(
        "walk_is_unbounded",
        f"{METADATA}/ordered.py",
        "or len(running) >= depth):",
        "or len(running) >= 1 << 60):",
        "a walk keeps the records of all ledgers in memory",
    ),
    Mutation(
        "page_is_longer",
        STORE,
        "                if len(found) >= count:\n",
        "                if len(found) > count:\n",
        "a page has one id more than requested",
    ),
    Mutation(
        "flat_ids_go_round",
        IDS,
        "            if self._is_flat:\n",
        "            if False:\n",
        "the flat layout gets ids that Apache's flat layout does not have",
    ),
    Mutation(
        "ids_are_shared",
        IDS,
        "                del numbers[: order.count]\n",
        "",
        "two ledgers get one id",
    ),
    Mutation(
        "ids_of_a_full_transaction",
        IDS,
        "while self._orders and count + self._orders[0].count <= COUNT_MAX:",
        "while self._orders:",
        "one transaction takes any number of ids",
    ),
    Mutation(
        "transactions_for_ids_are_unbounded",
        IDS,
        "while self._orders and len(self._transactions) < TRANSACTIONS_MAX:",
        "while self._orders:",
        "the requests for ids delay the other requests of a client",
    ),
    Mutation(
        "calls_that_wait_for_ids_are_forgotten",
        IDS,
        "        self._transactions.discard(task)\n        self._begin()\n",
        "        self._transactions.discard(task)\n",
        "a client creates no ledgers any more",
    ),
]

MUTATIONS = [*_MARKS, *_SETTINGS, *_ELECTION, *_NOTES, *_IDENTITIES, *_UPKEEP, *_LEDGERS]
