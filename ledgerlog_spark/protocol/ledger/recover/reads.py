"""Reads the entries after the LAC for a recovery, many entries at once.

The recovery takes the entries in order. Every read of a single entry also fences (PROTOCOL.md#C2).
One positive answer makes an entry present. An entry is absent only when Qw - Qa + 1 bookies of its
write set reported it absent, each in the answer to a fencing read. All other answers (a timeout, a
bad digest, an I/O error) prove nothing (PROTOCOL.md#C8). At first, only one bookie gets a request
for an entry. The other bookies get a request if its answer is slow or does not contain the entry.

If every bookie stores every entry (E == Qw), batches find the present entries. Then all bookies get
a read of the first entry that is in no batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ledgerlog_spark.model import Code, Quorum
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.entry_batch import EntryBatch
from ledgerlog_spark.protocol.ledger.quorum import negative_quorum, write_set
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

LAST_ID = (1 << 63) - 1


class Verdict(Enum):
    """The state of one entry according to the answers."""

    UNDECIDED = "undecided"
    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Limits of the entries that recovery reads before it has written the earlier entries back.

    Attributes:
        entries_first: Maximum number of requested entries at first. The limit grows with the number
            of entries found.
        entries_max: Maximum number of requested entries after the limit has grown.
        size_bytes_max: Maximum size of the requested entries, estimated from the largest entry so
            far. This limit also applies to the entries that wait to be written back.
        slow_member_ms: Delay after which a request without an answer is also sent to other bookies.
            The actual delay is one to two times as long.
        batch_entries_max: Maximum number of entries in one answer. The value 1 turns batches off.
        batch_size_bytes_max: Maximum size of one answer.
    """

    entries_first: int = 16
    entries_max: int = 512
    size_bytes_max: int = 32 << 20
    slow_member_ms: int = 250
    batch_entries_max: int = 1_024
    batch_size_bytes_max: int = 1 << 20


@dataclass(slots=True, eq=False)
class EntryTally:
    """The answers of a write set about one entry."""

    entry_id: int
    members: tuple[int, ...]  # indexes of the write set, in the order of requests
    absents_needed: int
    requested: int = 0
    answers: int = 0
    absents: int = 0
    entry: m.StoredEntry | None = None  # the first valid copy
    is_slow: bool = False

    def take(self, code: Code, entry: m.StoredEntry | None) -> None:
        """Count one bookie's answer."""
        self.answers += 1
        if code is Code.OK:
            self.entry = self.entry or entry
        elif self.counts_as_absent(code):
            self.absents += 1

    @staticmethod
    def counts_as_absent(code: Code) -> bool:
        """Whether an answer is an explicit report that the bookie does not have the entry."""
        return code.is_absent

    @property
    def verdict(self) -> Verdict:
        """The verdict so far. A copy makes it PRESENT, even if the verdict was ABSENT before."""
        if self.entry is not None:
            return Verdict.PRESENT
        if self.absents >= self.absents_needed:
            return Verdict.ABSENT
        if self.answers == len(self.members):
            return Verdict.UNKNOWN
        return Verdict.UNDECIDED


@dataclass(slots=True, eq=False)
class PresenceBatches:
    """Reads batches, one at a time, first from the bookie with the largest last entry.

    A batch shows that its entries are present, but never that an entry is absent. Only fencing
    reads of a single entry show its absence. So a batch does not fence, and a short, late or lost
    batch only costs time (PROTOCOL.md#C2, PROTOCOL.md#C8).
    """

    ensemble: tuple[str, ...]
    order: list[int]  # indexes; the bookie at the first index gets the next batch
    last_entry_ids: Mapping[int, int]  # ids by index, from the fencing answers
    read_ahead: ReadAhead
    numbers: RequestNumbers
    is_refused: bool = False  # if True, a bookie does not support batches
    _current: int = 0
    _sent: dict[int, int] = field(default_factory=dict)
    _is_slow: bool = False

    def __post_init__(self) -> None:
        # The sort is stable, so bookies with the same last entry keep their order of preference.
        self.order.sort(key=lambda index: -self.last_entry_ids.get(index, -1))

    @property
    def is_out(self) -> bool:
        """Whether a batch is pending."""
        return self._current != 0

    def ends_before(self, entry_id: int) -> bool:
        """Whether the bookie that gets the next batch has no entry from `entry_id` on.

        The bookie reported its last entry when it was fenced.
        """
        return entry_id > self.last_entry_ids.get(self.order[0], LAST_ID)

    def request(self, first_entry_id: int) -> m.SendReadBatch:
        """Request the entries from `first_entry_id` on, within the limits of a batch."""
        index = self.order[0]
        self._current = number = self.numbers.next()
        self._sent[number] = index
        self._is_slow = False
        return m.SendReadBatch(
            number,
            self.ensemble[index],
            index,
            first_entry_id,
            self.read_ahead.batch_entries_max,
            self.read_ahead.batch_size_bytes_max,
            is_recovery=True,
        )

    def take_reply(self, reply: m.BatchReplied, first_entry_id: int) -> EntryBatch | None:
        """Return the entries of `reply` from `first_entry_id` on; None if there are none.

        A late answer counts too, because it also proves that its entries are present.
        """
        index = self._sent.pop(reply.request)
        if reply.request == self._current:
            self._current = 0
        if reply.code is Code.BAD_REQUEST:
            self.is_refused = True
        if reply.code is not Code.OK:
            self.order.remove(index)
            self.order.append(index)
        if not reply.entries:
            return None
        entries = EntryBatch.of(reply.entries)
        if entries.first_entry_id > first_entry_id:
            return None
        return entries.between(first_entry_id, LAST_ID)

    def awaits(self, reply: m.BatchReplied) -> bool:
        """Whether `reply` is the answer to a batch that this object requested."""
        return reply.request in self._sent

    def prefer(self, index: int) -> None:
        """Use the bookie at `index` next, because it returned an entry."""
        self.order.remove(index)
        self.order.insert(0, index)

    def tick(self) -> bool:
        """Abandon the batch if it was already pending at the last call of this method.

        Return whether a batch was abandoned.
        """
        if self.is_out and self._is_slow:
            self._current = 0
            return True
        self._is_slow = self.is_out
        return False


@dataclass(slots=True, eq=False)
class RecoveryReads:
    """Reads the entries from `first_entry_id` on, from the ensemble that recovery has fenced."""

    quorum: Quorum
    ensemble: tuple[str, ...]  # the ensemble of the last fragment (PROTOCOL.md#C11)
    answering: int  # bits of the indexes that answered recently; they get the first requests
    first_entry_id: int
    read_ahead: ReadAhead
    numbers: RequestNumbers
    last_entry_ids: Mapping[int, int] | None = None  # by index; if None, no batches are read
    is_unauthorized: bool = False  # if True, a bookie reported a wrong password
    next_entry_id: int = field(init=False)  # the first entry that has not been taken yet
    _next_to_request: int = field(init=False)
    _tallies: dict[int, EntryTally] = field(default_factory=dict)
    _sent: dict[int, tuple[EntryTally, int]] = field(default_factory=dict)
    _largest_size_bytes: int = 1
    _absent: dict[int, bool] = field(default_factory=dict)
    _present: list[m.StoredEntry] = field(default_factory=list)
    _batches: PresenceBatches | None = None

    def __post_init__(self) -> None:
        self.next_entry_id = self._next_to_request = self.first_entry_id
        last_entry_ids, limits = self.last_entry_ids, self.read_ahead
        is_striped = self.quorum.is_striped
        if last_entry_ids is not None and not is_striped and limits.batch_entries_max > 1:
            members = list(self._members(self.first_entry_id))
            self._batches = PresenceBatches(
                self.ensemble, members, last_entry_ids, limits, self.numbers
            )

    @property
    def verdict(self) -> Verdict:
        """The verdict on the entry `next_entry_id`."""
        if self._present:
            return Verdict.PRESENT
        tally = self._tallies.get(self.next_entry_id)
        return tally.verdict if tally is not None else Verdict.UNDECIDED

    def fill(self) -> list[m.SendRead | m.SendReadBatch]:
        """Request further entries within the limits, until an absent entry is found."""
        batches = self._batches
        if batches is None or batches.is_refused:
            return [*self._fill_singly()]
        if self._absent or self._tallies or batches.is_out:
            return []
        if batches.ends_before(self._next_to_request):
            return [*self._request_frontier()]
        return [batches.request(self._next_to_request)]

    def _fill_singly(self) -> list[m.SendRead]:
        effects: list[m.SendRead] = []
        while not self._absent and len(self._tallies) < self._ahead_max():
            entry_id = self._next_to_request
            self._next_to_request += 1
            if entry_id in self._tallies:
                continue
            effects += self._request_members(self._new_tally(entry_id), 1)
        return effects

    def take_reply(self, reply: m.ReadReplied) -> list[m.SendRead]:
        """Record an answer.

        If the answer decides nothing, the other bookies get requests for the entry too.
        """
        tally, index = self._sent.pop(reply.request, (None, 0))
        if tally is None:
            return []
        if reply.code is Code.UNAUTHORIZED:
            self.is_unauthorized = True
            return []
        if self._tallies.get(tally.entry_id) is not tally:
            return []
        tally.take(reply.code, reply.entry)
        if reply.entry is not None:
            if self._batches is not None:
                self._batches.prefer(index)
            self._largest_size_bytes = max(self._largest_size_bytes, len(reply.entry.payload))
        verdict = tally.verdict
        if verdict is Verdict.ABSENT:
            self._absent[tally.entry_id] = True
        elif verdict is Verdict.PRESENT:
            self._absent.pop(tally.entry_id, None)
        return self._request_all(tally) if verdict is Verdict.UNDECIDED else []

    def take_batch_reply(self, reply: m.BatchReplied) -> list[m.SendRead]:
        """Keep a batch's entries. After an empty batch, request the next entry from all bookies."""
        batches = self._batches
        if batches is None or not batches.awaits(reply):
            return []
        frontier = self._next_to_request
        found = batches.take_reply(reply, frontier)
        if reply.code is Code.UNAUTHORIZED:
            self.is_unauthorized = True
        elif found is not None:
            self._tallies.pop(frontier, None)
            self._absent.pop(frontier, None)
            self._present += found
            self._next_to_request = found.last_entry_id + 1
        elif not batches.is_refused:
            return self._request_frontier()
        return []

    def _request_frontier(self) -> list[m.SendRead]:
        """Request the first entry that is in no batch from every bookie."""
        entry_id = self._next_to_request
        if entry_id in self._tallies:
            return []
        return self._request_all(self._new_tally(entry_id))

    def _new_tally(self, entry_id: int) -> EntryTally:
        tally = EntryTally(entry_id, self._members(entry_id), negative_quorum(self.quorum))
        self._tallies[entry_id] = tally
        return tally

    def hedge(self) -> list[m.SendRead]:
        """If an entry was already undecided at the last call, request it from all its bookies."""
        effects: list[m.SendRead] = []
        for tally in self._tallies.values():
            if tally.verdict is Verdict.UNDECIDED:
                if tally.is_slow:
                    effects += self._request_all(tally)
                tally.is_slow = True
        if self._batches is not None and self._batches.tick():
            effects += self._request_frontier()
        return effects

    def take_present(self) -> list[m.StoredEntry]:
        """Take the present entries from `next_entry_id` on, in order and without gaps."""
        taken, self._present = self._present, []
        self.next_entry_id += len(taken)
        while self.verdict is Verdict.PRESENT:
            entry = self._tallies.pop(self.next_entry_id).entry
            assert entry is not None
            taken.append(entry)
            self.next_entry_id += 1
        self._next_to_request = max(self._next_to_request, self.next_entry_id)
        return taken

    def _ahead_max(self) -> int:
        limits = self.read_ahead
        found = self.next_entry_id - self.first_entry_id
        by_size = max(1, limits.size_bytes_max // self._largest_size_bytes)
        return min(limits.entries_max, limits.entries_first + 2 * found, by_size)

    def _members(self, entry_id: int) -> tuple[int, ...]:
        members = write_set(self.quorum, entry_id)
        return tuple(sorted(members, key=lambda index: not self.answering >> index & 1))

    def _request_all(self, tally: EntryTally) -> list[m.SendRead]:
        return self._request_members(tally, len(tally.members))

    def _request_members(self, tally: EntryTally, up_to: int) -> list[m.SendRead]:
        effects = []
        for index in tally.members[tally.requested : up_to]:
            number = self.numbers.next()
            self._sent[number] = (tally, index)
            effects.append(
                m.SendRead(
                    number,
                    self.ensemble[index],
                    index,
                    tally.entry_id,
                    fence=True,
                    is_recovery=True,
                )
            )
        tally.requested = max(tally.requested, up_to)
        return effects
