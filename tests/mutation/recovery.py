"""Mistakes about replacements of a recovery that lose their entries before the close."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

LEDGER = "ledgerlog_spark/protocol/ledger"
TAIL = f"{LEDGER}/recover/tail.py"

MUTATIONS = [
    Mutation(
        "recovery_ignores_identities",
        f"{LEDGER}/recover/recovery.py",
        "identities = self._tail.identities\n",
        "identities = ()\n",
        "a closed ledger names a bookie that has lost its entries",
    ),
    Mutation(
        "resends_without_identities",
        f"{LEDGER}/metadata_update.py",
        "self._intended, version, self.identities)",
        "self._intended, version, () if self.may_be_written else self.identities)",
        "a close that is sent again names a bookie that has lost its entries",
    ),
    Mutation(
        "changed_bookie_makes_a_lost_write_definite",
        f"{LEDGER}/metadata_update.py",
        "self._finish(m.Failure.BOOKIE_CHANGED, is_definite=not self.may_be_written)",
        "self._finish(m.Failure.BOOKIE_CHANGED)",
        "a write that may have happened is reported as not happened",
    ),
    Mutation(
        "newest_identity_of_a_replacement_counts",
        TAIL,
        "self._identities = {**found, **self._identities}",
        "self._identities = {**self._identities, **found}",
        "a bookie that is chosen again may lack what an earlier fragment names it for",
    ),
    Mutation(
        "identities_of_unnamed_bookies_count",
        TAIL,
        "for name, one in self._identities.items() if name in named)",
        "for name, one in self._identities.items())",
        "a bookie that the record does not name prevents the close",
    ),
    Mutation(
        "bookie_without_a_cookie_counts_once",
        TAIL,
        "                    self._bookies.settle(index)  # so that this failure counts too\n",
        "",
        "bookies without cookies are chosen forever",
    ),
    Mutation(
        "bookie_without_a_cookie_is_used",
        TAIL,
        "elif all(chosen.ensemble[index] in found for index in chosen.replaced):",
        "elif True:",
        "a bookie that was taken out of service gets entries",
    ),
    Mutation(
        "unread_identities_are_read_again",
        TAIL,
        "        if event.identities is None:\n"
        "            self._abandon(pipeline, chosen.replaced)\n"
        "        elif all",
        "        if all",
        "without the store, an attempt chooses bookies many times",
    ),
    Mutation(
        "attempt_does_not_wait_for_identities",
        TAIL,
        "return self._listing != 0 or self._chosen is not None",
        "return self._listing != 0",
        "an attempt fails although a replacement is chosen",
    ),
    Mutation(
        "failure_during_a_read_of_identities_is_forgotten",
        TAIL,
        "*(self._list_bookies() if self._bookies else ())",
        "",
        "a failed bookie is never replaced, and the recovery stands still",
    ),
    Mutation(
        "host_closes_without_identities",
        "ledgerlog_spark/client/host/effects.py",
        "        if not effect.identities:\n",
        "        if True:\n",
        "the identities of a close are not compared",
    ),
    Mutation(
        "bookie_that_changed_is_a_conflict",
        "ledgerlog_spark/client/errors_from_codes.py",
        "        return MetadataOutcome.BOOKIE_CHANGED\n",
        "        return MetadataOutcome.CONFLICT\n",
        "a recovery repeats a close that can never succeed",
    ),
]
