"""Mistakes in the commands of operators: checks, imports, deletions and accepted losses."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

TOOLS = "ledgerlog_spark/tools"
CLUSTERS = "ledgerlog_spark/metadata/clusters.py"

MUTATIONS = [
    Mutation(
        "unknown_copies_are_missing",
        f"{TOOLS}/held_copies.py",
        "        return self.copies + self.copies_unknown < quorum.ack_quorum\n",
        "        return self.copies < quorum.ack_quorum\n",
        "a check reports a loss because a bookie restarts",
    ),
    Mutation(
        "the_last_fragment_of_an_open_ledger_is_checked",
        f"{TOOLS}/held_copies.py",
        "    if metadata.is_closed:\n        ends.append(metadata.last_entry_id)\n",
        "    ends.append(metadata.last_entry_id if metadata.is_closed else 1 << 40)\n",
        "every open ledger lacks entries that its writer has not sent yet",
    ),
    Mutation(
        "lists_are_read_from_their_start",
        f"{TOOLS}/held_copies.py",
        "        place += 1\n    places[name] = place\n",
        "        place += 1\n    places[name] = place + 1\n",
        "entries that a bookie lists count as missing",
    ),
    Mutation(
        "an_import_opens_a_ledger",
        f"{TOOLS}/exported_record.py",
        "    if new.state < found.state:\n",
        "    if new.state is None:\n",
        "a closed ledger has a writer again",
    ),
    Mutation(
        "an_import_moves_the_end",
        f"{TOOLS}/exported_record.py",
        "    if found.is_closed and ends[0] != ends[1]:\n",
        "    if found.is_closed and ends[0] > ends[1]:\n",
        "readers see an end that no recovery found",
    ),
    Mutation(
        "an_import_ignores_the_version",
        f"{TOOLS}/exported_record.py",
        "    if replaced_version != found_version.number:\n",
        "    if replaced_version is None:\n",
        "an import overwrites a change that the operator has not seen",
    ),
    Mutation(
        "an_import_crosses_clusters",
        f"{TOOLS}/exported_record.py",
        "    if exported.instance_id != instance_id:\n",
        "    if not exported.instance_id:\n",
        "a ledger gets the record of another cluster's ledger with the same id",
    ),
    Mutation(
        "a_cluster_is_created_beside_old_logs",
        CLUSTERS,
        "            if await znodes.children_of(self._tree, self._root + suffix):\n",
        "            if suffix == '-none' and await znodes.children_of(self._tree, suffix):\n",
        "logs of the earlier cluster list ledgers of the new one",
    ),
    Mutation(
        "a_cluster_with_bookies_is_deleted",
        CLUSTERS,
        "[znodes.DeleteNode(each) for each in paths if await self._tree.stat(each)]",
        "list[znodes.NodeOperation]()",
        "a bookie that registers after the check loses its ledgers",
    ),
    Mutation(
        "a_deletion_is_not_marked",
        CLUSTERS,
        '        mark = f"{DELETING}{instance.value}".encode()\n',
        "        mark = instance.value.encode()\n",
        "a bookie starts in a cluster that is being deleted",
    ),
    Mutation(
        "the_end_of_a_deletion_is_not_one_transaction",
        CLUSTERS,
        "            await self._tree.transact([znodes.DeleteNode(path) for path in there])\n"
        "        except znodes.TransactionFailedError as failure:\n",
        "            for path in there:\n"
        "                await self._tree.delete(path)\n"
        "        except znodes.NodeNotEmptyError as failure:\n",
        "an interrupted deletion cannot be continued, because INSTANCEID is gone",
    ),
    Mutation(
        "a_second_acceptance_replaces_the_first",
        "ledgerlog_spark/wire/ledger_loss.py",
        "        return replace(self, acceptances=(*self.acceptances, acceptance))\n",
        "        return replace(self, acceptances=(acceptance,))\n",
        "the first acceptance is lost, and workers look for its entries again",
    ),
    Mutation(
        "accepted_entries_are_no_longer_listed",
        "ledgerlog_spark/autorecovery/accepted.py",
        "return tuple(joined([*ranges, *given_up])) if given_up else tuple(ranges)",
        "return tuple(ranges)",
        "an auditor reports an accepted loss again",
    ),
    Mutation(
        "workers_list_no_accepted_entries",
        "ledgerlog_spark/autorecovery/replicate/bookie_requests.py",
        "listed = tuple(joined([*held, *given_up])) if given_up else held",
        "listed = held",
        "a worker reports an accepted loss again",
    ),
    Mutation(
        "accepted_entries_are_read_to_force",
        "ledgerlog_spark/protocol/autorecovery/replicate/job.py",
        "absent = joined([*copied.holes, *copied.given_up])",
        "absent = joined([*copied.holes])",
        "a ledger with an accepted loss is never healed again",
    ),
]
