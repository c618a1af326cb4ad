"""Mistakes in the tools for the files of a stopped bookie."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

TOOLS = "bookie_server/tools"

MUTATIONS = [
    Mutation(
        "tools_downgrade_before_the_end_of_a_stop",
        f"{TOOLS}/versions.py",
        "        and UNCLEAN_NAME not in directory.names\n",
        "",
        "the previous release takes a stop that was cut for a clean one",
    ),
    Mutation(
        "tools_downgrade_open_files",
        f"{TOOLS}/versions.py",
        "        and not any(directory.entries(FileState.OPEN))\n",
        "",
        "the previous release replays files of a write mode that it does not have",
    ),
    Mutation(
        "tools_dump_the_oldest_copy",
        f"{TOOLS}/entries.py",
        "newest = max(begun, key=_origin)",
        "newest = min(begun, key=_origin)",
        "an entry that recovery wrote again is dumped as it was before",
    ),
    Mutation(
        "tools_dump_a_piece_over_newer_ones",
        f"{TOOLS}/entries.py",
        "end = min([*ends, *(each - 1 for each in later)])",
        "end = newest.piece.last",
        "a piece hides the newer copies that begin within it",
    ),
    Mutation(
        "tools_dump_deleted_entries",
        f"{TOOLS}/entries.py",
        "if is_ours and record.origin_sequence > self._tombstone:",
        "if is_ours:",
        "entries of a deleted ledger come back in a dump",
    ),
    Mutation(
        "tools_count_no_gap_at_the_end",
        f"{TOOLS}/entries.py",
        "            outcome.missing.add(at, last)\n",
        "            pass\n",
        "ids after the last entry are not reported as missing",
    ),
    Mutation(
        "tools_forget_missing_files",
        f"{TOOLS}/entries.py",
        "                doubts.add(entry.file_id)\n",
        "                pass\n",
        "a dump looks complete although a file is missing",
    ),
    Mutation(
        "tools_check_no_damaged_bodies",
        f"{TOOLS}/check.py",
        """        if gap.record is not None:
            report.find(scan.entry.slot, gap.offset, _damaged(gap.record))
""",
        """        if gap.record is not None:
            continue
""",
        "a damaged body in a finished file is not found",
    ),
    Mutation(
        "tools_check_no_live_bytes",
        f"{TOOLS}/check.py",
        "if comparison.live_bytes != entry.live_bytes:",
        "if False:",
        "wrong live bytes in the MANIFEST are not found",
    ),
    Mutation(
        "tools_check_no_header",
        f"{TOOLS}/check.py",
        "    if not is_intact:\n",
        "    if False:\n",
        "a file with the header of another file is not found",
    ),
    Mutation(
        "tools_check_forgets_findings_beyond_the_limit",
        f"{TOOLS}/check.py",
        "        self.wrong += 1\n        if len(self.findings) < self.limit:\n",
        "        if len(self.findings) < self.limit:\n            self.wrong += 1\n",
        "defects beyond the limit are not counted",
    ),
    Mutation(
        "tools_rebuild_an_index_over_lost_records",
        f"{TOOLS}/rebuild.py",
        "    if not scan.is_whole:\n",
        "    if False:\n",
        "with the new index, a bookie denies the entries of a record that is not readable",
    ),
    Mutation(
        "tools_rebuild_only_heads",
        f"{TOOLS}/rebuild.py",
        "            await finish(read_block(file, number))\n",
        "            pass\n",
        "a damaged block of an index is taken for intact",
    ),
    Mutation(
        "tools_format_the_manifest_last",
        f"{TOOLS}/format.py",
        "ours = [name for name in (NAME,) if name in names] + slots + states",
        "ours = slots + states + [name for name in (NAME,) if name in names]",
        "after a crash, a bookie starts with a part of its files",
    ),
    Mutation(
        "tools_format_overlooks_open_files",
        f"{TOOLS}/format.py",
        "if finished or runs:",
        "if finished:",
        "entries of a killed bookie are deleted without --force",
    ),
    Mutation(
        "tools_excerpts_lose_a_row",
        f"{TOOLS}/excerpts.py",
        "        if key < start:\n",
        "        if key <= start and start:\n",
        "the first row of each further excerpt is lost",
    ),
    Mutation(
        "start_accepts_a_cut_journal",
        "bookie_server/storage/modes/redo.py",
        "    if sizes[name] >= run.journal_file_bytes:\n",
        "    if sizes:\n",
        "entries at the end of a journal file that was cut are denied",
    ),
    Mutation(
        "tools_show_damaged_copies_as_valid",
        f"{TOOLS}/journal_files.py",
        "VALID if is_whole else DAMAGED",
        "VALID",
        "a damaged journal looks intact",
    ),
    Mutation(
        "tools_show_every_damage_as_torn",
        f"{TOOLS}/journal_files.py",
        'row["damage"] == row["torn"] == 1',
        'row["damage"]',
        "damage in the last journal file looks like the end of an interrupted write",
    ),
    Mutation(
        "tools_rebuild_deleted_entries",
        f"{TOOLS}/rebuild.py",
        "scan.index(shared.states.tombstone_of)",
        "scan.index()",
        "deleted entries count as live bytes",
    ),
    Mutation(
        "tools_rebuild_forgets_dropped_ledgers",
        "bookie_server/storage/files/finished_scan.py",
        "                index.name_only(ledger_id)\n",
        "                pass\n",
        "a tombstone is forgotten while a file has records of its ledger",
    ),
    Mutation(
        "tools_format_files_of_others",
        "bookie_server/storage/files/manifest.py",
        "    return _SLOT_NAME.fullmatch(name) is not None\n",
        "    return name.startswith(SLOT_PREFIX)\n",
        "a copy of a file that an operator made is deleted",
    ),
    Mutation(
        "tools_take_any_directory",
        f"{TOOLS}/directory.py",
        "        return file.read(len(begin)) == begin\n",
        "        return bool(file)\n",
        "files of another program are deleted",
    ),
    Mutation(
        "tools_dump_nothing_after_a_bad_sector",
        f"{TOOLS}/entries.py",
        "            except StorageError:\n                await self._rebuild(file)\n",
        "            except ZeroDivisionError:\n                await self._rebuild(file)\n",
        "one unreadable block of an index hides all entries of a ledger",
    ),
    Mutation(
        "tools_downgrade_hides_copies",
        f"{TOOLS}/versions.py",
        "    if not entry.is_copies or entry.slot not in directory.names:\n",
        "    if entry.slot:\n",
        "the previous release denies the copies of a file with a damaged index",
    ),
]
