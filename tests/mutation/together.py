"""Mistakes in the handling of requests that arrive together."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

SEGMENTS = "bookie_server/service/v2/segments.py"
TOGETHER = "bookie_server/service/v2/together.py"
STRETCHES = "bookie_server/storage/reading/stretches.py"
ADDS = "bookie_server/storage/adds.py"

MUTATIONS = [
    Mutation(
        "burst_passes_fence",
        SEGMENTS,
        "or left_bytes < 0:\n                break\n            head, entry_id, lac",
        "or left_bytes < 0:\n                continue\n            head, entry_id, lac",
        "an add that was sent after a fence is stored with the adds before the fence",
    ),
    Mutation(
        "burst_takes_recovery_adds",
        SEGMENTS,
        "if head[:4] not in _PLAIN_ADDS or head[_ENTRY_OFFSET] & 0x80:",
        "if head[_ENTRY_OFFSET] & 0x80:",
        "an add of a recovery is refused by the fence of this recovery",
    ),
    Mutation(
        "burst_one_code",
        SEGMENTS,
        "if run is None or head != run.head or entry_id <= last_id or lac < last_lac:",
        "if run is None or entry_id <= last_id or lac < last_lac:",
        "an add with a wrong key is stored, or all adds of its run are refused",
    ),
    Mutation(
        "burst_hides_a_last_add_confirmed",
        SEGMENTS,
        " or entry_id <= last_id or lac < last_lac:",
        " or entry_id <= last_id:",
        "readers do not see a last add confirmed that the bookie has acknowledged",
    ),
    Mutation(
        "burst_repeats_are_stored",
        ADDS,
        "request.entry_ids[0] <= state.last_accepted_id:\n            return False",
        "request.entry_ids[0] < 0:\n            return False",
        "a repeated add is stored twice, although it was answered already",
    ),
    Mutation(
        "burst_is_taken_while_closing",
        ADDS,
        "if lac is None or self._health.is_closing or self._verdict",
        "if lac is None or self._verdict",
        "an add is queued after the last group of a stopping journal",
    ),
    Mutation(
        "burst_overtakes_its_ledger",
        TOGETHER,
        "        if run.ledger_id in segment.refused:\n            return False",
        "        if run.ledger_id in segment.refused and not run.frames:\n            return False",
        "adds are stored before earlier adds of the same ledger",
    ),
    Mutation(
        "burst_copy_counts_for_ever",
        TOGETHER,
        "        self.shares.adds.give_back(cost_bytes)\n",
        "",
        "the lane of adds fills, and the bookie reads no more",
    ),
    Mutation(
        "burst_refused_keeps_its_bytes",
        TOGETHER,
        "            adds.give_back(run.cost_bytes)\n",
        "",
        "refused adds fill the lane of adds",
    ),
    Mutation(
        "burst_is_one_frame_of_a_turn",
        "bookie_server/service/v2/connection.py",
        "left_count -= done.frames",
        "left_count -= 1",
        "one connection holds up the others with thousands of small frames",
    ),
    Mutation(
        "burst_of_reads_keeps_bytes_of_the_rest",
        TOGETHER,
        "        share.give_back(of_one * (len(ids) - begun))\n",
        "",
        "reads that are begun later are counted twice",
    ),
    Mutation(
        "burst_of_reads_takes_the_last_entry",
        SEGMENTS,
        "        if entry_id < 0:\n            break\n        if head != first:",
        "        if head != first:",
        "a read of the last entry is answered as a missing entry",
    ),
    Mutation(
        "cold_stretch_grows",
        STRETCHES,
        "return 0 if self.is_fixed else max(0, self._ids[-1] - self.first)",
        "return max(0, self._ids[-1] - self.first)",
        "an entry is read and answered twice",
    ),
    Mutation(
        "stretch_goes_backwards",
        STRETCHES,
        "if not last < number <= following or",
        "if not number <= following or",
        "reads in falling order are answered with other bytes",
    ),
    Mutation(
        "stretch_reads_what_nobody_wants",
        STRETCHES,
        " or ends[number] - end > CHUNK_SIZE:",
        ":",
        "two reads at the ends of a run read all bytes between them",
    ),
    Mutation(
        "stretch_has_one_code",
        STRETCHES,
        "    except StorageError:\n        # A file",
        "    except TypeError:\n        # A file",
        "one damaged chunk makes all entries of a stretch unreadable",
    ),
    Mutation(
        "burst_is_refused_in_each_turn",
        "bookie_server/service/v2/connection.py",
        "                self._alone = len(done.left)\n",
        "                self._alone = 0\n",
        "a connection whose adds are refused is never answered, and takes all CPU time",
    ),
    Mutation(
        "burst_of_reads_has_no_room",
        TOGETHER,
        "ledger_id, ids, (of_one - REQUEST_OVERHEAD_BYTES) * len(ids), peer=self.peer",
        "ledger_id, ids, peer=self.peer",
        "reads of large entries get BUSY because they arrive together",
    ),
    Mutation(
        "stretch_serves_overwritten_entries",
        "bookie_server/storage/reading/reads.py",
        "following = yield from self._until_newer(ledger_id, ids, best.origin, opened, others)",
        "del ids",
        "reads that arrive together get older copies than reads that arrive alone",
    ),
    Mutation(
        "stretch_serves_what_is_newer_in_the_active_file",
        "bookie_server/storage/reading/reads.py",
        "        for open_file in opened:\n            ids = ",
        "        for open_file in ():\n            ids = ",
        "entries that recovery has just rewritten are read only if they are read alone",
    ),
]
