"""Mistakes in the priorities of a bookie's work, and in the pins of its files."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

STORAGE = "bookie_server/storage"
RUNTIME = f"{STORAGE}/device/runtime.py"
DEVICE = f"{STORAGE}/device/filesystem.py"
READINGS = f"{STORAGE}/reading/readings.py"

MUTATIONS = [
    Mutation(
        "background_is_inherited",
        RUNTIME,
        "        context.run(_priority.set, priority)\n",
        "        if priority is Priority.BACKGROUND:\n"
        "            context.run(_priority.set, priority)\n",
        "work that compaction spawns for a client waits for turns",
    ),
    Mutation(
        "slices_follow_each_other",
        RUNTIME,
        "            rest = PERIOD_SECONDS - (self._now() - self._began)\n",
        "            rest = 0.0\n",
        "background work takes the whole event loop",
    ),
    Mutation(
        "slice_has_no_end",
        RUNTIME,
        "        if self._now() - self._began < SLICE_SECONDS:\n            return\n",
        "        if self._began:\n            return\n",
        "background work holds the event loop",
    ),
    Mutation(
        "cancelled_turn_ends_the_turns",
        RUNTIME,
        "                turn.set_result(None)\n                break\n        self._schedule()\n",
        "                turn.set_result(None)\n                self._schedule()\n"
        "            break\n",
        "no background task gets a turn after one was cancelled",
    ),
    Mutation(
        "copies_share_the_thread_of_control",
        DEVICE,
        "        return self.keeper if priority is Priority.FOREGROUND else self._background\n",
        "        return self.keeper\n",
        "the next file waits for the sync of copies",
    ),
    Mutation(
        "background_write_is_not_a_use",
        DEVICE,
        '        await self._use(thread, lambda: self._write(offset, buffers), "write")\n',
        "        await thread.call(lambda: self._write(offset, buffers))\n",
        "a file is closed under a background write, which may go to another file",
    ),
    Mutation(
        "group_is_not_a_use",
        DEVICE,
        '        await self._use(writer, lambda: self._write_synced(offset, buffers), "write")\n',
        "        await writer.call(lambda: self._write_synced(offset, buffers))\n",
        "a start that is stopped closes a file under a write, which may go to another file",
    ),
    Mutation(
        "use_ends_with_its_task",
        RUNTIME,
        "    call.on_end()\n    if call.future.done():\n",
        "    if call.future.done():\n",
        "a file whose task was cancelled is never closed",
    ),
    Mutation(
        "lock_ends_before_the_calls",
        DEVICE,
        "            if not thread.is_stopped:\n                await thread.call(lambda: None)\n",
        "            pass\n",
        "a start that is stopped renames a file of the next process",
    ),
    Mutation(
        "copies_are_synced_at_the_end",
        f"{STORAGE}/compaction/pace.py",
        "        if self._unsynced_bytes + size_bytes > UNSYNCED_BYTES_MAX:\n",
        "        if self._unsynced_bytes < 0:\n",
        "one sync of a whole file delays the device",
    ),
    Mutation(
        "slot_reused_under_pin",
        f"{STORAGE}/files/pool.py",
        "        if not self.pins and self.on_unpinned is not None:\n",
        "        if self.on_unpinned is not None:\n",
        "a file is freed while one of two readings uses it",
    ),
    Mutation(
        "cold_read_pins_nothing",
        READINGS,
        "                    pins.add(need.handle)\n",
        "",
        "a reading loses its file again and again",
    ),
    Mutation(
        "freed_file_ends_the_reading",
        READINGS,
        "                        need = reading.throw(error)  # searches for the entry again\n"
        "                        continue\n",
        "                        raise\n",
        "a read fails because compaction moved its entry",
    ),
    Mutation(
        "dropped_ledger_stays_live",
        f"{STORAGE}/files/live_bytes.py",
        "        self._count -= 1\n",
        "",
        "a file without live entries is never freed",
    ),
]
