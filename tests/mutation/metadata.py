"""Mistakes in the stores of ledgers and logs, on a tree of nodes."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

METADATA = "ledgerlog_spark/metadata"

_LEDGERS = [
    Mutation(
        "ids_of_a_counter_that_went_round",
        f"{METADATA}/ledgers/ids.py",
        "                return None if is_used_up else numbers\n",
        "                return numbers\n",
        "ids that were used once are given out again",
    ),
    Mutation(
        "ids_of_two_directories_overlap",
        f"{METADATA}/ledgers/ids.py",
        "return [(high << 32) | number for number in numbers]",
        "return [(high << 30) | number for number in numbers]",
        "the counters of two directories give out one id",
    ),
    Mutation(
        "ids_of_a_replica_that_is_behind",
        f"{METADATA}/ledgers/ids.py",
        "        await self._tree.sync(self._root)\n        names =",
        "        names =",
        "the directory of the ids comes from a replica that lags",
        equivalent="each counter returns each number once, so the ids of an older directory are "
        "new too",
    ),
    Mutation(
        "ids_end_with_their_directory",
        f"{METADATA}/ledgers/ids.py",
        "            self._high = None\n        raise",
        "        raise",
        "a client whose directory of ids is full creates no ledger any more",
    ),
    Mutation(
        "ids_lost_answer_is_final",
        f"{METADATA}/ledgers/ids.py",
        """            except MetadataUnknownError as error:
                lost = error
            else:
                paths =""",
        """            except MetadataUnknownError:
                raise
            else:
                paths =""",
        "one lost answer fails the creation of a ledger",
    ),
    Mutation(
        "created_record_of_somebody_else",
        f"{METADATA}/ledgers/store.py",
        "if metadata.token is not None and found.value.token == metadata.token:",
        "if metadata.token is not None and lost is not None:",
        "after a lost answer the record of another client counts as ours",
    ),
    Mutation(
        "created_record_is_forgotten_in_an_outage",
        f"{METADATA}/tree.py",
        "            raise self.lost or error from None\n",
        "            raise error from None\n",
        "a ledger that may be there is reported as not created",
    ),
    Mutation(
        "ledger_write_ignores_version",
        f"{METADATA}/ledgers/store.py",
        "written = await self._tree.set(self.path(ledger_id), data, version)",
        "written = await self._tree.set(self.path(ledger_id), data, None)",
        "a writer overwrites the record that recovery changed",
    ),
]

_LOGS = [
    Mutation(
        "registration_unchecked",
        f"{METADATA}/logs/producers.py",
        "            znodes.CheckNode(self._paths.producer(log_id, app), version),\n",
        "",
        "a zombie registers ledgers",
    ),
    Mutation(
        "registration_that_ended_counts",
        f"{METADATA}/logs/producers.py",
        "if lost is not None and await self._tree.stat(proof) is not None:",
        "if lost is not None:",
        "a ledger is written whose registration the sweeper ended",
    ),
    Mutation(
        "registrations_of_a_run_count_as_older",
        f"{METADATA}/logs/producers.py",
        "int(node.value) < epoch]",
        "int(node.value) <= epoch]",
        "a run's own ledgers are sealed under it",
    ),
    Mutation(
        "mark_is_not_renewed",
        f"{METADATA}/logs/producers.py",
        """            elif was == LISTED:
                operations.append(znodes.SetNode(path, was, None))
""",
        "",
        "a ledger that was listed again and unlisted has no time of grace",
    ),
    Mutation(
        "producers_overwrite_each_other",
        f"{METADATA}/logs/producers.py",
        "operations: list[znodes.NodeOperation] = [znodes.SetNode(path, data, version)]\n",
        "operations: list[znodes.NodeOperation] = [znodes.SetNode(path, data, None)]\n",
        "two runs have one epoch",
    ),
    Mutation(
        "created_log_unseen_by_a_replica",
        f"{METADATA}/logs/store.py",
        "        await self.sync()\n        found = await self.read_head(head.log_id)\n",
        "        found = await self.read_head(head.log_id)\n",
        "a log that this client created counts as a log of another client",
    ),
    Mutation(
        "deletion_of_a_namesake",
        f"{METADATA}/logs/store.py",
        """        if pointer.value.decode() != head.log_id:
            raise""",
        """        if False:
            raise""",
        "deleting a log again takes the name of its successor",
    ),
    Mutation(
        "log_not_found_on_one_replica",
        f"{METADATA}/logs/store.py",
        "        for is_synced in (False, True):\n",
        "        for is_synced in (False,):\n",
        "a log that a replica does not show yet does not exist",
    ),
    Mutation(
        "log_is_removed_with_marks",
        f"{METADATA}/logs/store.py",
        "        if await znodes.children_of(self._tree, paths.marks(log_id)):\n",
        "        if False:\n",
        "ledgers that were marked during the removal are never deleted",
    ),
    Mutation(
        "log_is_removed_before_its_producers",
        f"{METADATA}/logs/store.py",
        """        for app in await self.producers.names(log_id):
            found = await self.producers.read(log_id, app)
            if found is not None:
                await self.producers.delete(log_id, app, found.version)
""",
        """        for app in await self.producers.names(log_id):
            await self._nodes.delete_below(paths.producer(log_id, app))
            await self._nodes.delete(paths.producer(log_id, app))
""",
        "a ledger that was registered during the removal is never deleted",
    ),
    Mutation(
        "head_write_ignores_version",
        f"{METADATA}/logs/store.py",
        "znodes.SetNode(paths.head(log_id), encode_head(write.head), write.head_version)",
        "znodes.SetNode(paths.head(log_id), encode_head(write.head), None)",
        "commits overwrite each other",
    ),
    Mutation(
        "commit_ignores_producer_version",
        f"{METADATA}/logs/store.py",
        "operations.append(znodes.SetNode(path, record, write.producer_version))",
        "operations.append(znodes.SetNode(path, record, None))",
        "a run that was replaced commits",
    ),
    Mutation(
        "commit_names_swept_pages",
        f"{METADATA}/logs/store.py",
        "            path = paths.pages(log_id, write.token)\n"
        "            operations.append(znodes.CheckNode(path, write.pages_version))\n",
        "            pass\n",
        "a commit names pages that the sweeper deleted meanwhile",
    ),
    Mutation(
        "unlisted_ledgers_get_no_mark",
        f"{METADATA}/logs/store.py",
        "        operations += await self.producers.marks(log_id, write.unlisted, LISTED)\n",
        "",
        "ledgers that no version names stay forever",
    ),
    Mutation(
        "clock_not_counted_on",
        f"{METADATA}/store_clock.py",
        "return self._store_ms + age_ms",
        "return self._store_ms",
        "the clock stands still",
    ),
    Mutation(
        "clock_of_any_age",
        f"{METADATA}/store_clock.py",
        "if age_ms_max is not None and age_ms > age_ms_max:",
        "if False:",
        "the time of an answer that is days old is used",
    ),
    Mutation(
        "clock_never_falls",
        f"{METADATA}/store_clock.py",
        "        self._store_ms = store_ms\n        self._noted_ns",
        "        self._store_ms = max(store_ms, self._store_ms or 0)\n        self._noted_ns",
        "after one answer with a time in the future, the clock stays ahead forever",
    ),
    Mutation(
        "queue_is_in_order_of_tokens",
        f"{METADATA}/logs/nodes.py",
        'return sorted(names, key=lambda name: name.rpartition("-")[2])',
        "return sorted(names)",
        "a later member of the queue comes first, and two members may wait for each other",
    ),
    Mutation(
        "queue_is_joined_twice",
        f"{METADATA}/logs/nodes.py",
        """                if name.startswith(f"{token}-"):
                    return name
            raise""",
        """                if name.startswith(f"{token}-"):
                    break
            raise""",
        "a member whose answer was lost waits in the queue without a writer",
    ),
    Mutation(
        "lease_of_an_earlier_session",
        f"{METADATA}/held_nodes.py",
        "                    return stat.owner == self._tree.session_id\n",
        "                    return True\n",
        "two processes do upkeep at the same time",
    ),
]

_REGISTRATION = [
    Mutation(
        "bookie_is_looked_for_twice",
        f"{METADATA}/registration.py",
        "for directory in (self._available, self._read_only, self._available):",
        "for directory in (self._available, self._read_only):",
        "a bookie that becomes writable between two looks is not registered",
    ),
    Mutation(
        "cookie_of_another_process_is_ours",
        f"{METADATA}/registration.py",
        "if attempts.lost is None or found is None or found.value != cookie:",
        "if found is None or found.value != cookie:",
        "two processes that start at the same time become one bookie",
    ),
    Mutation(
        "any_cookie_is_ours_after_a_lost_answer",
        f"{METADATA}/registration.py",
        "if attempts.lost is None or found is None or found.value != cookie:",
        "if attempts.lost is None or found is None:",
        "a bookie starts with the cookie of another bookie",
    ),
    Mutation(
        "node_is_made_in_one_attempt",
        f"{METADATA}/tree.py",
        "    attempts = WriteAttempts(MAKE_ATTEMPTS_MAX)\n",
        "    attempts = WriteAttempts(1)\n",
        "a lost answer ends the first start of a bookie",
    ),
]

MUTATIONS = [*_LEDGERS, *_LOGS, *_REGISTRATION]
