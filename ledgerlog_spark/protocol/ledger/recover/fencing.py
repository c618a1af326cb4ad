"""Fences the bookies of an ensemble by reads of their last entries, which also return the LAC.

A bookie that has not answered is possibly not fenced. If every possible ack quorum contains a
bookie that has answered, the ensemble is *covered*, and the old writer cannot confirm another entry
(PROTOCOL.md#C3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ledgerlog_spark.model import NO_ENTRY, Code, Quorum
from ledgerlog_spark.protocol.ledger.messages import HoleLeft, ReadReplied, SendRead
from ledgerlog_spark.protocol.ledger.quorum import is_covered, owned_entries
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

FENCED_CODES = (Code.OK, Code.NO_ENTRY, Code.NO_LEDGER, Code.DIGEST_MISMATCH)
"""Answers that prove that a bookie is fenced, even if a bad digest makes the answer's LAC unknown
(PROTOCOL.md#C4).
"""


class FencingState(Enum):
    """Progress of fencing."""

    UNDECIDED = "waiting for answers"
    COVERED = "covered"
    UNCOVERED = "all bookies answered, but the ensemble is not covered"
    UNAUTHORIZED = "wrong password"


@dataclass(slots=True, eq=False)
class Fencing:
    """Sends one fencing read to each bookie of an ensemble, and collects the answers."""

    quorum: Quorum
    ensemble: tuple[str, ...]
    numbers: RequestNumbers
    known: int = 0  # bits of the indexes whose bookies are fenced
    last_add_confirmed: int = NO_ENTRY  # the largest LAC in the answers
    # last entry of each bookie by index, from the answers before the decision
    last_entry_ids: dict[int, int] = field(default_factory=dict)
    # last entry of each bookie by index, from all answers
    last_found: dict[int, int] = field(default_factory=dict)
    state: FencingState = FencingState.UNDECIDED
    _sent: dict[int, int] = field(default_factory=dict)

    def begin(self) -> list[SendRead]:
        """Send a fencing read of the last entry to each bookie."""
        effects = []
        for index, bookie_id in enumerate(self.ensemble):
            number = self.numbers.next()
            self._sent[number] = index
            effects.append(
                SendRead(number, bookie_id, index, NO_ENTRY, fence=True, is_recovery=True)
            )
        return effects

    def take_reply(self, reply: ReadReplied) -> FencingState:
        """Take an answer, and return the new state.

        After the decision, an answer does not change the state (PROTOCOL.md#C10). It only adds the
        last entry of its bookie to `last_found`, which shows which entries the bookie lacks.
        """
        index = self._sent.pop(reply.request, None)
        if index is not None and reply.entry is not None:
            self.last_found[index] = reply.entry.entry_id
        if index is None or self.state is not FencingState.UNDECIDED:
            return self.state
        if reply.code is Code.UNAUTHORIZED:
            self.state = FencingState.UNAUTHORIZED
        elif reply.code in FENCED_CODES:
            self.known |= 1 << index
            if reply.entry is not None:
                self.last_entry_ids[index] = reply.entry.entry_id
                self.last_add_confirmed = max(
                    self.last_add_confirmed, reply.entry.last_add_confirmed
                )
            if is_covered(self.quorum, self.known):
                self.state = FencingState.COVERED
        if self.state is FencingState.UNDECIDED and not self._sent:
            self.state = FencingState.UNCOVERED
        return self.state

    def holes(self, first_entry_id: int, last_entry_id: int) -> list[HoleLeft]:
        """Return the holes among these entries, which recovery does not read (PROTOCOL.md#C24).

        A bookie has a hole if it has not answered, or if its last entry is before the last of these
        entries that it must have.
        """
        size = self.quorum.ensemble_size
        holes: list[HoleLeft] = []
        if first_entry_id > last_entry_id:
            return holes
        first_looked_at = max(first_entry_id, last_entry_id - size + 1)
        for index, bookie_id in enumerate(self.ensemble):
            owned = owned_entries(self.quorum, index, first_looked_at, last_entry_id)
            if owned and self.last_found.get(index, NO_ENTRY) < owned[-1]:
                holes.append(HoleLeft(first_entry_id, last_entry_id, bookie_id))
        return holes
