"""Mistakes in vacations: the machine, the share of a ledger, the refusals, the bookie."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

VACATE = "ledgerlog_spark/protocol/autorecovery/vacate"
HOST = "ledgerlog_spark/autorecovery/vacate"

MUTATIONS = [
    Mutation(
        "vacation_ends_without_quiet",
        f"{VACATE}/vacating.py",
        "return walk.ledgers == 0 and walk.is_quiet",
        "return walk.ledgers == 0",
        "a writer with an old list names the bookie after the end",
    ),
    Mutation(
        "vacation_ignores_returns",
        f"{VACATE}/vacating.py",
        " and walk.returns == departure.returns:",
        ":",
        "the cookie is deleted under a bookie that has just started",
    ),
    Mutation(
        "vacation_ignores_another_registration",
        f"{VACATE}/vacating.py",
        "if event.registration != self._registration:",
        "if False:",
        "the bookie was writable between two looks, and the minute goes on",
    ),
    Mutation(
        "vacation_ignores_a_cancellation",
        f"{VACATE}/vacating.py",
        "before.incarnation != self._version.incarnation:",
        "before.incarnation > self._version.incarnation:",
        "a vacation that was begun once more ends with the walk of the first one",
    ),
    Mutation(
        "vacation_walk_is_not_synced",
        f"{VACATE}/vacating.py",
        "m.WalkLedgers(self._next(), -1, sync_first=True)",
        "m.WalkLedgers(self._next(), -1, sync_first=False)",
        "a replica does not show a ledger that names the bookie",
    ),
    Mutation(
        "vacation_counts_moves_for_ever",
        f"{VACATE}/vacating.py",
        "is_due = self._polls * self.settings.poll_ms >= self.settings.walk_ms",
        "is_due = False",
        "a move of another reason that is never made prevents the end",
    ),
    Mutation(
        "vacation_walks_all_the_time",
        f"{VACATE}/vacating.py",
        "        if left[0] == 0:\n            return self._pause()  # until",
        "        if left[0] == 0:\n            return self._begin_walk()  # until",
        "all ledgers are read every five seconds for a minute",
    ),
    Mutation(
        "drain_deletes_the_cookie",
        f"{VACATE}/vacating.py",
        "kind = m.Retire if over.deletes_cookie else m.WriteVacation",
        "kind = m.Retire",
        "a drained bookie does not start any more",
    ),
    Mutation(
        "empty_fragments_name_nobody",
        f"{VACATE}/share.py",
        "return any(bookie_id in fragment.ensemble for fragment in metadata.fragments)",
        "return bytes_on(metadata, bookie_id) > 0",
        "a ledger names a bookie that is out of service",
    ),
    Mutation(
        "share_ignores_stripes",
        f"{VACATE}/share.py",
        "return copies * quorum.write_quorum // quorum.ensemble_size",
        "return copies",
        "a bookie of a striped ledger seems to hold all entries",
    ),
    Mutation(
        "own_bytes_are_free_elsewhere",
        f"{VACATE}/refusals.py",
        "return tuple(name for name in self.writable if name != bookie_id)",
        "return self.writable",
        "a bookie is its own target",
    ),
    Mutation(
        "unknown_free_bytes_are_none",
        f"{VACATE}/refusals.py",
        "return sum(known) if len(known) == len(free) else None",
        "return sum(known)",
        "beside bookies of Apache, every vacation is refused",
    ),
    Mutation(
        "another_vacation_is_no_refusal",
        f"{HOST}/survey.py",
        "if name != bookie_id and not found.value.is_over",
        "if name != bookie_id and found.value.is_over",
        "two bookies are emptied onto each other",
    ),
    Mutation(
        "cancelled_moves_stay",
        f"{HOST}/runner.py",
        "            await remove_moves(self._stores, self._bookie_id)\n",
        "            pass\n",
        "copies are moved off a bookie that is in service",
    ),
    Mutation(
        "cancellation_removes_moves_of_placement",
        f"{HOST}/runner.py",
        " or move.reason is MoveReason.PLACEMENT",
        "",
        "misplaced copies stay where they are",
    ),
    Mutation(
        "disabled_is_ignored_by_vacations",
        f"{HOST}/runner.py",
        "if not await self._stores.recovery_switch.is_enabled():",
        "if False:",
        "moves are queued although auto-recovery is disabled",
    ),
    Mutation(
        "unreadable_ledger_is_walked_over",
        f"{HOST}/runner.py",
        "                unreadable.append(walked.ledger_id)\n",
        "                continue\n",
        "a bookie is taken out of service although a damaged record may name it",
    ),
]
