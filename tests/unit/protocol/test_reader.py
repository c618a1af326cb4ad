"""Reads are three-valued, in order, bounded, and helped by other replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.model import (
    SLICE_RANGES_MAX,
    SLICED_ENTRIES_MAX,
    Code,
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.quorum import owns
from ledgerlog_spark.protocol.ledger.read.budget import FIRST_BATCH_ENTRIES, ReaderSettings
from ledgerlog_spark.protocol.ledger.read.lac import LacReader
from ledgerlog_spark.protocol.ledger.read.reader import LedgerReader
from tests.fixtures.kinds import all_of, only

PLAIN = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("b0", "b1", "b2")),))
STRIPED = LedgerMetadata(Quorum(4, 2, 2), (Fragment(0, ("b0", "b1", "b2", "b3")),))
Refuse = Callable[[str, int], Code | None]


def stored(entry_id: int) -> m.StoredEntry:
    return m.StoredEntry(entry_id, entry_id - 1, 10 * (entry_id + 1), b"x" * 10)


class Replicas:
    """Bookies that hold their entries up to `last`, except where `refuse` says otherwise."""

    def __init__(
        self, metadata: LedgerMetadata, last: int, refuse: Refuse | None = None, short: int = 10**9
    ) -> None:
        self.metadata = metadata
        self.last = last
        self.refuse = refuse or (lambda _bookie, _entry: None)
        self.short = short
        self.sent: list[m.Effect] = []
        self.delivered: list[int] = []
        self.loads = 0
        self.takes = True
        self.without_slices: set[str] = set()
        self.slices_refused: Code | None = None
        self.damaged: set[tuple[str, int]] = set()
        self.payloads: list[bytes] = []

    def code(self, bookie_id: str, index: int, entry_id: int) -> Code:
        refused = self.refuse(bookie_id, entry_id)
        if refused is not None:
            return refused
        owned = owns(self.metadata.quorum, index, entry_id) and entry_id <= self.last
        return Code.OK if owned else Code.NO_ENTRY

    def reply(self, effect: m.Effect) -> m.Event | None:
        self.sent.append(effect)
        match effect:
            case m.SendRead(request, bookie_id, index, entry_id):
                code = self.code(bookie_id, index, entry_id)
                return m.ReadReplied(request, code, stored(entry_id) if code is Code.OK else None)
            case m.SendReadBatch(request, bookie_id, index, first, count, _):
                entries: list[m.StoredEntry] = []
                for entry_id in range(first, first + min(count, self.short)):
                    code = self.code(bookie_id, index, entry_id)
                    if code is not Code.OK:
                        return m.BatchReplied(request, Code.OK if entries else code, tuple(entries))
                    entries.append(stored(entry_id))
                return m.BatchReplied(request, Code.OK, tuple(entries))
            case m.SendReadSlices():
                return self.slices_of(effect)
            case m.LoadMetadata(request):
                self.loads += 1
                loaded = Versioned(self.metadata, Version(1, self.loads))
                return m.MetadataLoaded(request, m.MetadataOutcome.OK, loaded)
        return None

    def slices_of(self, effect: m.SendReadSlices) -> m.Event:
        if effect.bookie_id in self.without_slices:
            return m.BatchReplied(effect.request, Code.BAD_REQUEST, ())
        if self.slices_refused is not None:
            return m.BatchReplied(effect.request, self.slices_refused, ())
        first, entries, code = effect.first_entry_id, [], Code.OK
        for entry_id in range(first, min(effect.last_entry_id + 1, first + self.short)):
            code = self.code(effect.bookie_id, effect.index, entry_id)
            if code is Code.OK and (effect.bookie_id, entry_id) in self.damaged:
                code = Code.DIGEST_MISMATCH
            if code is not Code.OK:
                break
            payload = effect.slices.payload_of(entry_id, b"slices")
            assert payload is not None
            entries.append(m.StoredEntry(entry_id, -1, 0, payload))
        return m.BatchReplied(effect.request, Code.OK if entries else code, tuple(entries))

    def run(self, reader: LedgerReader) -> m.Effect:
        effects = reader.handle(m.Start())
        while True:
            following: list[m.Effect] = []
            for effect in effects:
                match effect:
                    case m.EntriesRead(entries):
                        self.delivered += [e.entry_id for e in entries]
                        self.payloads += [bytes(e.payload) for e in entries]
                        if self.takes:
                            taken = m.EntriesTaken(self.delivered[-1])
                            following += reader.handle(taken)
                    case m.RangeRead() | m.ReadFailed():
                        return effect
                    case _:
                        event = self.reply(effect)
                        following += reader.handle(event) if event is not None else []
            assert following, "nothing is left to answer"
            effects = following


def reader(metadata: LedgerMetadata, first: int, last: int, **settings: Any) -> LedgerReader:
    return LedgerReader(
        metadata=metadata,
        first_entry_id=first,
        last_entry_id=last,
        settings=ReaderSettings(**settings),
    )


@pytest.mark.parametrize("metadata", [PLAIN, STRIPED], ids=["plain", "striped"])
@pytest.mark.parametrize("short", [1, 3, 1000])
def test_a_range_comes_in_order_whatever_the_batches(metadata: LedgerMetadata, short: int) -> None:
    replicas = Replicas(metadata, 999, short=short)
    one = reader(metadata, 7, 300, batch_entries_max=50)
    assert isinstance(replicas.run(one), m.RangeRead)
    assert replicas.delivered == list(range(7, 301))
    assert one.last_add_confirmed == 299
    batches = any(isinstance(e, m.SendReadBatch) for e in replicas.sent)
    assert batches == (metadata is PLAIN)


@pytest.mark.parametrize(
    ("payload_size_bytes", "entries"), [(1 << 10, 970), (64 << 10, 15), (10, 1_024)]
)
def test_a_batch_of_a_closed_ledger_requests_as_many_as_fit_one_answer(
    payload_size_bytes: int, entries: int
) -> None:
    metadata = replace(
        PLAIN,
        state=LedgerState.CLOSED,
        last_entry_id=9_999,
        length=10_000 * payload_size_bytes,
    )
    effects = reader(metadata, 0, 9_999).handle(m.Start())
    first = effects[0]
    assert isinstance(first, m.SendReadBatch)
    assert first.count_max == entries


def test_entries_of_the_size_of_an_answer_are_requested_one_by_one_of_all_bookies() -> None:
    metadata = replace(PLAIN, state=LedgerState.CLOSED, last_entry_id=99, length=100 << 20)
    effects = reader(metadata, 0, 99).handle(m.Start())
    asked = [effect.bookie_id for effect in effects if isinstance(effect, m.SendRead)]
    assert set(asked) == {"b0", "b1", "b2"}
    assert not any(isinstance(effect, m.SendReadBatch) for effect in effects)


def test_batches_of_a_ledger_of_unknown_sizes_begin_small() -> None:
    effects = reader(PLAIN, 0, 9_999).handle(m.Start())
    counts = [effect.count_max for effect in effects if isinstance(effect, m.SendReadBatch)]
    assert counts
    assert set(counts) == {FIRST_BATCH_ENTRIES}


def test_batches_end_with_their_fragment() -> None:
    two = PLAIN.with_fragments((*PLAIN.fragments, Fragment(10, ("b3", "b4", "b5"))))
    replicas = Replicas(two, 99)
    assert isinstance(replicas.run(reader(two, 0, 20)), m.RangeRead)
    for sent in replicas.sent:
        if isinstance(sent, m.SendReadBatch):
            last = sent.first_entry_id + sent.count_max - 1
            assert (sent.bookie_id >= "b3") == (sent.first_entry_id >= 10) == (last >= 10)


@pytest.mark.parametrize("metadata", [PLAIN, STRIPED], ids=["plain", "striped"])
@pytest.mark.parametrize(
    "code", [Code.DIGEST_MISMATCH, Code.NO_ENTRY, Code.TIMEOUT, Code.IO_ERROR, Code.NO_LEDGER]
)
def test_the_next_replica_helps_out(metadata: LedgerMetadata, code: Code) -> None:
    replicas = Replicas(metadata, 99, lambda bookie, _: code if bookie == "b1" else None)
    assert isinstance(replicas.run(reader(metadata, 0, 99, batch_entries_max=10)), m.RangeRead)
    assert replicas.delivered == list(range(100))


def test_an_entry_is_absent_only_after_all_members_said_so_twice() -> None:
    replicas = Replicas(PLAIN, 4)
    end = replicas.run(reader(PLAIN, 0, 9, batch_entries_max=1))
    assert end == m.ReadFailed(
        m.Failure.ENTRY_ABSENT, 5, tuple((f"b{i}", Code.NO_ENTRY) for i in (2, 0, 1))
    )
    assert replicas.delivered == [0, 1, 2, 3, 4]
    asked = [e for e in replicas.sent if isinstance(e, m.SendRead) and e.entry_id == 5]
    assert (len(asked), replicas.loads) == (6, 1)


def test_silence_before_a_reload_does_not_count_as_absence() -> None:
    """The bookies may have been replaced between the reload and their only negative answers."""
    silent = {"b0", "b1", "b2"}

    def refuse(bookie_id: str, _: int) -> Code:
        code = Code.TIMEOUT if bookie_id in silent else Code.NO_ENTRY
        silent.discard(bookie_id)
        return code

    replicas = Replicas(PLAIN, -1, refuse)
    end = replicas.run(reader(PLAIN, 0, 0))
    assert isinstance(end, m.ReadFailed)
    assert (end.failure, replicas.loads) == (m.Failure.ENTRY_ABSENT, 2)


def test_an_entry_whose_bookies_change_with_every_reload_is_unknown() -> None:
    replicas = Replicas(PLAIN, -1)
    moves = 0

    def refuse(_bookie: str, _entry: int) -> Code:
        nonlocal moves
        moves += 1
        ensemble = (f"b{moves}", f"b{moves + 1}", f"b{moves + 2}")
        replicas.metadata = PLAIN.with_fragments((Fragment(0, ensemble),))
        return Code.NO_ENTRY

    replicas.refuse = refuse
    end = replicas.run(reader(PLAIN, 0, 0))
    assert isinstance(end, m.ReadFailed)
    reloads_max = ReaderSettings().reloads_max
    assert (end.failure, replicas.loads) == (m.Failure.ENTRY_UNKNOWN, reloads_max)


def test_each_entry_is_looked_for_again_after_a_load_of_its_own() -> None:
    """At first, no bookie has an entry. Meanwhile, a recovery writes the entries back."""
    written_back: set[tuple[str, int]] = set()

    def refuse(bookie_id: str, entry_id: int) -> Code | None:
        if (bookie_id, entry_id) in written_back:
            return None
        written_back.add((bookie_id, entry_id))
        return Code.NO_ENTRY

    replicas = Replicas(PLAIN, 99, refuse)
    entries = 3 * ReaderSettings().reloads_max
    end = replicas.run(reader(PLAIN, 0, entries - 1, batch_entries_max=1))
    assert isinstance(end, m.RangeRead)
    assert (replicas.delivered, replicas.loads) == (list(range(entries)), entries)


@pytest.mark.parametrize(
    ("other", "failure"),
    [
        (Code.TIMEOUT, m.Failure.ENTRY_UNKNOWN),
        (Code.IO_ERROR, m.Failure.ENTRY_UNKNOWN),
        (Code.DIGEST_MISMATCH, m.Failure.ENTRY_UNKNOWN),
        (Code.NO_LEDGER, m.Failure.ENTRY_ABSENT),
    ],
)
def test_one_member_without_a_definite_answer_makes_an_entry_unknown(
    other: Code, failure: m.Failure
) -> None:
    replicas = Replicas(PLAIN, 9, lambda b, _: other if b == "b1" else Code.NO_ENTRY)
    end = replicas.run(reader(PLAIN, 3, 3))
    assert isinstance(end, m.ReadFailed)
    assert end.failure is failure


def test_bad_digests_everywhere_are_named_as_such() -> None:
    replicas = Replicas(PLAIN, 9, lambda b, _: Code.TIMEOUT if b == "b2" else Code.DIGEST_MISMATCH)
    end = replicas.run(reader(PLAIN, 3, 3))
    assert isinstance(end, m.ReadFailed)
    assert end.failure is m.Failure.DIGEST_MISMATCH


def test_an_ensemble_that_moved_is_followed() -> None:
    moved = PLAIN.with_fragments((Fragment(0, ("b7", "b8", "b9")),))
    replicas = Replicas(moved, 9, lambda b, _: Code.NO_LEDGER if b < "b7" else None)
    assert isinstance(replicas.run(reader(PLAIN, 0, 9)), m.RangeRead)
    assert replicas.delivered == list(range(10))
    assert replicas.loads <= 2


def test_readers_never_fence() -> None:
    replicas = Replicas(STRIPED, 50)
    replicas.run(reader(STRIPED, 0, 50))
    reads = [e for e in replicas.sent if isinstance(e, m.SendRead)]
    assert reads
    assert not any(read.fence or read.is_recovery for read in reads)


def test_it_reads_no_further_ahead_than_the_application_takes() -> None:
    one = reader(PLAIN, 0, 999, entries_ahead_max=100, batch_entries_max=10)
    replicas = Replicas(PLAIN, 999)
    effects = one.handle(m.Start())
    while effects:
        following: list[m.Effect] = []
        for effect in effects:
            event = replicas.reply(effect)
            following += one.handle(event) if event is not None else []
        effects = following
    assert one.next_entry_id == 100
    assert one.handle(m.EntriesTaken(49))


def test_a_slow_bookie_is_helped_by_another_after_the_hedge_delay() -> None:
    one = reader(PLAIN, 0, 9)
    batch, begun = one.handle(m.Start())
    assert isinstance(batch, m.SendReadBatch)
    assert isinstance(begun, m.StartTimer)
    timer = only(m.StartTimer, one.handle(m.TimerFired(begun.request)))
    hedge, _timer = one.handle(m.TimerFired(timer.request))
    assert isinstance(hedge, m.SendReadBatch)
    assert hedge.bookie_id != batch.bookie_id
    entries = tuple(stored(i) for i in range(10))
    delivered, end = one.handle(m.BatchReplied(hedge.request, Code.OK, entries))
    assert delivered == m.EntriesRead(entries)
    assert isinstance(end, m.RangeRead)
    assert one.handle(m.BatchReplied(batch.request, Code.OK, entries)) == []


def test_a_bookie_without_batches_is_read_entry_by_entry() -> None:
    one = reader(PLAIN, 0, 3, batch_entries_max=4)
    batch, _timer = one.handle(m.Start())
    assert isinstance(batch, m.SendReadBatch)
    retry = only(m.SendReadBatch, one.handle(m.BatchReplied(batch.request, Code.TIMEOUT, ())))
    reads = one.handle(m.BatchReplied(retry.request, Code.BAD_REQUEST, ()))
    assert [r.entry_id for r in reads if isinstance(r, m.SendRead)] == [0, 1, 2, 3]


def lac_answers(
    metadata: LedgerMetadata, *answers: tuple[Code, int], **arguments: Any
) -> list[m.Effect]:
    one = LacReader(metadata=metadata, **arguments)
    sends = all_of(m.SendReadLac, one.handle(m.Start()))
    effects: list[m.Effect] = []
    for send, (code, lac) in zip(sends, answers, strict=False):
        effects += one.handle(m.LacReplied(send.request, code, lac))
    return effects


def test_the_largest_lac_of_a_covering_quorum_is_the_answer() -> None:
    assert lac_answers(PLAIN, (Code.OK, 3), (Code.OK, 7), (Code.OK, 9)) == [m.LacRead(7, True)]


def test_a_lac_read_that_waits_for_all_passes_larger_values_on() -> None:
    effects = lac_answers(
        PLAIN, (Code.OK, 3), (Code.TIMEOUT, -1), (Code.OK, 9), waits_for_all=True, known=5
    )
    assert effects == [m.LacAdvanced(9), m.LacRead(9, True)]


def test_a_lac_without_coverage_says_so() -> None:
    effects = lac_answers(PLAIN, (Code.OK, 3), (Code.TIMEOUT, -1), (Code.UNAVAILABLE, -1))
    assert effects == [m.LacRead(3, False)]


def test_no_answer_at_all_is_a_failure_and_not_an_empty_ledger() -> None:
    (failed,) = lac_answers(PLAIN, *[(Code.TIMEOUT, -1)] * 3)
    assert isinstance(failed, m.LedgerFailed)
    assert (failed.failure, failed.is_retriable) == (m.Failure.LAC_UNKNOWN, True)


def test_the_lac_is_never_below_the_last_fragment() -> None:
    two = PLAIN.with_fragments((*PLAIN.fragments, Fragment(10, ("b3", "b4", "b5"))))
    assert lac_answers(two, (Code.NO_LEDGER, -1), (Code.OK, -1)) == [m.LacRead(9, True)]


def test_the_end_of_a_closed_ledger_needs_no_bookie() -> None:
    closed = PLAIN.closed(last_entry_id=41, length=5)
    assert LacReader(metadata=closed).handle(m.Start()) == [m.LacRead(41, True)]


class HalfEntries:
    """Slices with half of the bytes of each entry."""

    def __init__(self, size_bytes: int = 5, ranges: int = 1) -> None:
        self.ranges = [(2 * place * size_bytes, size_bytes) for place in range(ranges)]

    def ranges_of(self, entry_id: int) -> list[tuple[int, int]]:
        assert entry_id >= 0
        return self.ranges

    def payload_of(self, entry_id: int, data: m.Payload) -> m.Payload:
        return b"%d of %d bytes" % (entry_id, len(data))

    def note_given_up(self, count: int) -> None:
        raise AssertionError(f"the host of the machine reports {count}, and not the machine")


def slicing(
    metadata: LedgerMetadata, last: int, slices: HalfEntries | None = None, **settings: Any
) -> LedgerReader:
    return LedgerReader(
        metadata=metadata,
        first_entry_id=0,
        last_entry_id=last,
        settings=ReaderSettings(**settings),
        slices=slices or HalfEntries(),
    )


def kinds(replicas: Replicas) -> set[type]:
    sends = (m.SendRead, m.SendReadBatch, m.SendReadSlices)
    return {type(effect) for effect in replicas.sent if isinstance(effect, sends)}


@pytest.mark.parametrize("short", [1, 3, 1000])
def test_slices_come_in_order_without_whole_entries(short: int) -> None:
    replicas = Replicas(PLAIN, 999, short=short)
    outcome = replicas.run(slicing(PLAIN, 999))
    assert isinstance(outcome, m.RangeRead)
    assert replicas.delivered == list(range(1000))
    assert replicas.payloads == [b"%d of 6 bytes" % entry_id for entry_id in range(1000)]
    assert kinds(replicas) == {m.SendReadSlices}


def test_a_request_for_slices_is_bounded_by_entries_ranges_and_the_answer() -> None:
    sizes = {
        (5, 1, 1 << 20): SLICED_ENTRIES_MAX,
        (1, 100, 1 << 20): SLICE_RANGES_MAX // 100,
        (5_000, 1, 36 + 10 * 5_004): 10,
        (5_000, 1, 100): 1,
    }
    for (size_bytes, ranges, size_bytes_max), entries in sizes.items():
        replicas = Replicas(PLAIN, 4_999)
        slices = HalfEntries(size_bytes, ranges)
        replicas.run(slicing(PLAIN, 4_999, slices, batch_size_bytes_max=size_bytes_max))
        (first, *_) = [one for one in replicas.sent if isinstance(one, m.SendReadSlices)]
        assert first.last_entry_id - first.first_entry_id + 1 == entries
        assert replicas.delivered == list(range(5_000))


def test_requests_for_slices_stay_within_a_fragment() -> None:
    changed = replace(PLAIN, fragments=(PLAIN.fragments[0], Fragment(7, ("b0", "b3", "b4"))))
    replicas = Replicas(changed, 20)
    replicas.run(slicing(changed, 20))
    assert replicas.delivered == list(range(21))
    first, second = [one for one in replicas.sent if isinstance(one, m.SendReadSlices)]
    assert (first.last_entry_id, second.first_entry_id) == (6, 7)


def test_bookies_without_slices_are_read_in_whole_batches() -> None:
    replicas = Replicas(PLAIN, 99)
    replicas.without_slices = {"b0", "b1", "b2"}
    one = slicing(PLAIN, 99, batch_size_bytes_max=36 + 10 * 66)
    replicas.run(one)
    assert replicas.delivered == list(range(100))
    assert set(replicas.payloads) == {b"x" * 10}
    sent = sum(isinstance(effect, m.SendReadSlices) for effect in replicas.sent)
    assert one.slices_given_up == sent > 0
    assert kinds(replicas) == {m.SendReadSlices, m.SendReadBatch}


def test_damaged_slices_come_from_another_replica() -> None:
    replicas = Replicas(PLAIN, 50)
    replicas.damaged = {("b0", 7), ("b1", 7), ("b1", 30), ("b2", 0)}
    one = slicing(PLAIN, 50)
    replicas.run(one)
    assert one.slices_given_up == 0
    assert replicas.delivered == list(range(51))
    assert replicas.payloads == [b"%d of 6 bytes" % entry_id for entry_id in range(51)]


def test_an_entry_whose_slices_are_damaged_everywhere_is_read_whole() -> None:
    replicas = Replicas(PLAIN, 50)
    replicas.damaged = {(bookie_id, 7) for bookie_id in ("b0", "b1", "b2")}
    one = slicing(PLAIN, 50)
    outcome = replicas.run(one)
    assert isinstance(outcome, m.RangeRead)
    assert one.slices_given_up == 1
    assert replicas.delivered == list(range(51))
    assert replicas.payloads[6] == b"6 of 6 bytes"
    # Wrong checksums must not cost requests to all replicas for each entry.
    assert set(replicas.payloads[7:]) == {b"x" * 10}
    assert sum(isinstance(one, m.SendReadSlices) for one in replicas.sent) == 4


@pytest.mark.parametrize(
    "code", [Code.OK, Code.NO_ENTRY, Code.IO_ERROR, Code.BUSY, Code.TIMEOUT, Code.UNAUTHORIZED]
)
def test_slices_that_no_replica_sends_are_requested_once_from_each(code: Code) -> None:
    replicas = Replicas(PLAIN, 500)
    replicas.slices_refused = code
    assert isinstance(replicas.run(slicing(PLAIN, 500)), m.RangeRead)
    assert replicas.delivered == list(range(501))
    sent = Counter(one.first_entry_id for one in replicas.sent if type(one) is m.SendReadSlices)
    assert max(sent.values()) <= 3
    assert sum(sent.values()) <= 12  # the requests in flight, and not one for each entry


def test_a_missing_entry_is_lost_only_after_whole_reads() -> None:
    replicas = Replicas(PLAIN, 9)
    outcome = replicas.run(slicing(PLAIN, 12))
    assert isinstance(outcome, m.ReadFailed)
    assert outcome.failure is m.Failure.ENTRY_ABSENT
    assert outcome.entry_id == 10
    assert replicas.delivered == list(range(10))
    assert replicas.loads == 1


@pytest.mark.parametrize(
    "metadata", [STRIPED, replace(PLAIN, digest_type=DigestType.HMAC)], ids=["striped", "hmac"]
)
def test_striped_ledgers_and_those_with_an_hmac_are_read_whole(metadata: LedgerMetadata) -> None:
    replicas = Replicas(metadata, 30)
    replicas.run(slicing(metadata, 30))
    assert replicas.delivered == list(range(31))
    assert m.SendReadSlices not in kinds(replicas)
