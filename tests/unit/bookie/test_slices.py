"""However many ledgers and pieces there are, one turn of the event loop does a bounded part."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from bookie_server.core import manifest_codec
from bookie_server.core.doubt import Doubt
from bookie_server.core.index_format import PIECES_PER_BLOCK, IndexEncoder
from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.requests import StoredBatchRead
from bookie_server.errors import TooManyRangesError
from bookie_server.storage import adds, drops, slices
from bookie_server.storage import journal as log_module
from bookie_server.storage.device.runtime import OsTasks
from bookie_server.storage.files import active_index, entry_log_file, manifest
from bookie_server.storage.files.active_index import ActiveIndex
from bookie_server.storage.files.held import HeldFiles
from bookie_server.storage.files.pool import PooledFile
from bookie_server.storage.journal import Journal
from bookie_server.storage.reading import readings, reads
from bookie_server.storage.reading.recent import RECORD_COST_BYTES, RecentBodies
from bookie_server.storage.spans import Spans
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, add_request

UNITS = 10
LEDGERS = 120


class Meter:
    """The largest number of units of each kind of work between two events of the scheduler."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.most: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self._event: dict[str, int] = {}
        self._now: Counter[str] = Counter()

    def count(self, kind: str, units: int = 1) -> None:
        event = self.machine.scheduler.events
        if self._event.get(kind) != event:
            self._event[kind], self._now[kind] = event, 0
        self._now[kind] += units
        self.total[kind] += units
        self.most[kind] = max(self.most[kind], self._now[kind])


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> Meter:
    for module in (slices, active_index, manifest):
        monkeypatch.setattr(module, "UNITS_PER_TURN", UNITS)
    monkeypatch.setattr(log_module, "GROUP_RECORDS_MAX", UNITS)
    machine = Machine(
        1, settings=replace(SMALL, file_size_bytes=1 << 18, pieces_max=1_000, tombstone_keep_s=60)
    )
    meter = Meter(machine)

    def counted(owner: Any, name: str, kind: str, units: Callable[..., int] = lambda *_: 1) -> Any:
        original = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            meter.count(kind, units(*arguments))
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    machine.start()
    counted(manifest, "encode_states", "states", lambda _generation, _states, ids: len(ids))
    counted(IndexEncoder, "add", "pieces")
    counted(drops, "may_forget", "tombstones")
    counted(log_module, "append_encoded", "records")
    tombstone_of = HeldFiles.__init__

    def counting(self: HeldFiles, files: Any, tombstone: Callable[[int], Any]) -> None:
        def count_and_ask(ledger_id: int) -> Any:
            meter.count("ledgers of a file")
            return tombstone(ledger_id)

        tombstone_of(self, files, count_and_ask)

    monkeypatch.setattr(HeldFiles, "__init__", counting)
    machine.stop()
    machine.start()
    return meter


def add_to_all(machine: Machine, entry_id: int) -> None:
    codes: list[Code] = []
    for ledger_id in range(1, LEDGERS + 1):
        machine.serving.add(add_request(ledger_id, (entry_id,)), codes.append)
    machine.scheduler.run_until(lambda: len(codes) == LEDGERS)
    assert set(codes) == {Code.OK}


@pytest.mark.parametrize("count", [0, 1, 1_999, 2_000, 2_001, 4_000, 4_001])
def test_slices_are_all_items_in_their_order(count: int) -> None:
    items = range(count)
    found = list(slices.parts(items))
    assert [item for part in found for item in part] == list(items)
    assert len(found) == -(-count // slices.UNITS_PER_TURN)
    assert max(map(len, found), default=0) <= slices.UNITS_PER_TURN


def test_stretches_that_lie_within_others_or_touch_them_are_joined() -> None:
    spans = Spans([(0, 10), (3, 5), (11, 12), (14, 14)])
    assert (list(spans), len(spans), spans.last_id) == ([(0, 12), (14, 14)], 2, 14)


def test_commits_rolls_and_forgetting_are_done_in_slices(metered: Meter) -> None:
    machine = metered.machine
    metered.most.clear()
    for entry_id in range(6):
        add_to_all(machine, entry_id)
    assert len(list(machine.serving._keeper.finished)) >= 1
    machine.scheduler.run_for(1_000)
    for ledger_id in range(1, LEDGERS + 1):
        machine.serving.drop(ledger_id, lambda _code: None)
    machine.scheduler.run_for(1_000)
    assert machine.droppable() == []
    machine.host.wall_offset_ms += 1_000_000
    for entry_id in range(700):
        assert machine.add(9_999, (entry_id,), bytes(300)) is Code.OK
    machine.reclaim()
    machine.reclaim()
    assert sorted(machine.serving._states) == [9_999]
    for kind in ("states", "pieces", "ledgers of a file", "tombstones", "records"):
        assert metered.total[kind] >= LEDGERS, kind
        # One more record is the finish of a file.
        assert metered.most[kind] <= UNITS + (kind == "records"), kind


def test_a_group_has_a_bounded_number_of_records_however_small_they_are(metered: Meter) -> None:
    sizes: list[int] = []
    complete = Journal._complete

    def noted(self: Journal, group: list[JournalRecord], *, is_synced: bool) -> None:
        sizes.append(sum(record.kind is JournalRecordKind.RUN for record in group))
        complete(self, group, is_synced=is_synced)

    Journal._complete = noted
    try:
        add_to_all(metered.machine, 0)
    finally:
        Journal._complete = complete
    assert max(sizes) == UNITS
    assert sum(sizes) == LEDGERS


def test_an_index_in_memory_has_no_more_pieces_than_it_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(1, settings=replace(SMALL, file_size_bytes=1 << 20))
    machine.start()
    most = [0]
    insert = ActiveIndex.insert

    def noted(self: ActiveIndex, record: JournalRecord) -> None:
        insert(self, record)
        most[0] = max(most[0], self.pieces)

    monkeypatch.setattr(ActiveIndex, "insert", noted)
    codes: list[Code] = []
    runs = [range(first, first + 12, 3) for first in range(0, 1_200, 12)]
    within = [range(first, first + 9, 2) for first in range(10_000, 10_400, 10)]
    for ids in (*runs, range(10_000, 10_400), *within):
        machine.serving.add(add_request(7, ids, is_recovery=True), codes.append)
    count = len(runs) + 1 + len(within)
    machine.scheduler.run_until(lambda: len(codes) == count)
    assert set(codes) == {Code.OK}
    assert SMALL.pieces_max - 10 < most[0] <= SMALL.pieces_max
    assert machine.add(8, range(0, 300, 3)) is Code.OK  # alone, in a file of its own
    assert most[0] == 100


@pytest.mark.parametrize("gap", [0, 1])
@pytest.mark.parametrize("size", [40, 400])
def test_ids_and_lengths_in_memory_are_bounded_however_few_the_pieces(gap: int, size: int) -> None:
    """A run of thousands of entries with one gap is two pieces, but has long lists of ids."""
    bound = 1 << 16
    machine = Machine(
        1,
        settings=replace(SMALL, file_size_bytes=1 << 20, pieces_max=10_000, lists_bytes_max=bound),
    )
    machine.start()
    keeper = machine.serving._keeper

    def held_bytes(numbers: Sequence[int]) -> int:
        if isinstance(numbers, range):
            return 0
        return sum(8 + (sys.getsizeof(one) if one > 256 else 0) for one in numbers)

    first, most, total = 1 << 40, 0, 0
    while total < 4 * bound:
        ids = [*range(first, first + 99), first + 99 + gap]
        first += 200
        # Each entry has its own object, as if it had come in a frame.
        payloads = [bytes(size + n % 2) for n in range(100)]
        assert machine.add(7, ids if gap else range(ids[0], ids[0] + 100), payloads) is Code.OK
        pieces = keeper.active.index.pieces_of(7)
        runs = {id(piece.target): piece.target for piece in pieces}.values()
        lists = [held_bytes(run.entry_ids) + held_bytes(run.lengths) for run in runs]
        most = max(most, sum(lists))
        total += lists[-1]
        assert sum(lists) <= keeper.active.index.lists_bytes < bound + 10_000
    assert most > bound // 4
    assert keeper.active.entry.file_id > 2
    assert machine.read(7, 1 << 40)[0] is Code.OK


def test_ten_thousand_watches_end_without_looking_at_each_other(metered: Meter) -> None:
    storage = metered.machine.serving
    heard: list[int] = []
    compared: Counter[str] = Counter()

    class Watch:
        def __call__(self, lac: int) -> None:
            heard.append(lac)

        def __eq__(self, other: object) -> bool:
            compared["=="] += 1
            return self is other

        def __hash__(self) -> int:
            raise AssertionError("no watch is looked up by what it equals")

    ends = [storage.watch_lac(1, Watch()) for _ in range(10_000)]
    for end in ends[:-1]:
        end()
    assert metered.machine.add(1, (0,), lac=-1) is Code.OK
    assert metered.machine.add(1, (1,), lac=0) is Code.OK
    assert heard == [0]
    ends[-1]()
    ends[-1]()
    assert compared["=="] == 0


def test_a_manifest_of_many_files_is_encoded_in_slices(
    metered: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: Counter[int] = Counter()
    encode = manifest_codec._file_text

    def counted(file: FileEntry) -> Any:
        event = metered.machine.scheduler.events
        texts[event] += 1
        return encode(file)

    monkeypatch.setattr(manifest_codec, "_file_text", counted)
    storage = metered.machine.serving
    missing = [
        FileEntry(1_000 + number, f"slot-{1_000 + number}", "00" * 16, FileState.FINISHED, 4_096)
        for number in range(10 * UNITS)
    ]
    storage._keeper._missing = missing  # they stay named in each MANIFEST until the doubt is over
    storage._health.doubt = Doubt(epoch=1)
    metered.machine.scheduler.run(storage._keeper.commit_soon(), metered.machine.host)
    assert len(metered.machine.manifest().files) > 10 * UNITS
    assert max(texts.values()) == UNITS


def test_headers_that_are_cached_are_bounded_by_their_entries(
    metered: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may have 65,536 entries, whose lengths take 2 MB: a thousand of them would be 2 GB."""
    monkeypatch.setattr(reads, "LENGTHS_CACHED_MAX", 500)
    machine = metered.machine
    for run in range(100):
        ids = range(run * 100, run * 100 + 100)
        assert machine.add(7, ids, b"") is Code.OK
    machine.stop()
    machine.start()
    for entry_id in range(0, 10_000, 50):
        assert machine.read(7, entry_id)[0] is Code.OK
    cached = machine.serving._reader._records.values()
    assert 0 < sum(len(record.lengths) for record in cached) <= 500


def test_small_records_count_with_what_they_cost_in_memory() -> None:
    recent = RecentBodies(10 * RECORD_COST_BYTES)
    records = [JournalRecord(JournalRecordKind.RUN, 1, body=b"x") for _ in range(100)]
    for record in records:
        recent.keep(record)
    assert sum(record.body is not None for record in records) == 9


def test_a_list_of_entries_is_put_together_in_slices(
    metered: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two opened files and finished ones, with a thousand pieces each."""
    machine = metered.machine
    for number in range(25):
        # No file has copies of another file's entries, so every range is in one run.
        ids = range(number * 400, number * 400 + 400, 2)
        assert machine.add(7, ids, b"") is Code.OK
    assert list(machine.serving._keeper.finished)
    extend = Spans.extend

    def counted(self: Spans, spans: Iterable[tuple[int, int]]) -> None:
        spans = list(spans)
        metered.count("ranges", len(spans))
        extend(self, spans)

    monkeypatch.setattr(Spans, "extend", counted)
    monkeypatch.setattr(slices, "UNITS_PER_TURN", PIECES_PER_BLOCK)
    monkeypatch.setattr(readings, "NEEDS_PER_TURN", 1)
    assert machine.held(7) == [(entry_id, entry_id) for entry_id in range(0, 10_000, 2)]
    assert metered.total["ranges"] == 10_000, "each was looked at, and put into the list"
    assert metered.most["ranges"] <= PIECES_PER_BLOCK


def test_a_list_of_more_ranges_than_are_wanted_is_refused(metered: Meter) -> None:
    machine = metered.machine
    for number in range(10):
        assert machine.add(7, range(number * 400, number * 400 + 400, 2), b"") is Code.OK

    def held(count_max: int) -> int:
        listing = machine.serving.entries_held(7, count_max)
        return len(machine.scheduler.run(listing, machine.host))

    assert held(2_000) == 2_000
    for count_max in (100, 1_999):
        with pytest.raises(TooManyRangesError) as refused:
            held(count_max)
        assert (refused.value.ledger_id, refused.value.count_max) == (7, count_max)
    for number in range(10):
        assert machine.add(7, range(number * 400 + 1, number * 400 + 401, 2), b"") is Code.OK
    assert held(2_000) == 1, "those of different files that join are one"


def test_a_ledger_whose_pieces_are_dropped_counts_as_one_piece() -> None:
    index = active_index.ActiveIndex()
    index.insert(
        JournalRecord(JournalRecordKind.RUN, 1, entry_ids=range(0, 10, 2), lengths=(7,) * 5)
    )
    assert index.pieces == 5
    for _ in range(3):
        index.drop(1)
        index.drop(1)
        assert index.pieces == 1
        index.insert(JournalRecord(JournalRecordKind.RUN, 1, entry_ids=range(1), lengths=(7,)))
        assert index.pieces == 1
    index.drop(1)
    index.name_only(2)
    assert index.pieces == 2
    assert [total.ledger_id for total in index.totals()] == [1, 2]


def test_the_size_of_a_ledger_looks_at_each_length_once() -> None:
    """A run of every other entry has a piece for each entry. No piece counts earlier lengths."""

    class Lengths(tuple[int, ...]):
        __slots__ = ()
        looked_at = 0

        def __getitem__(self, part: Any) -> Any:
            found = super().__getitem__(part)
            Lengths.looked_at += len(found)
            return found

    index = active_index.ActiveIndex()
    lengths = Lengths([7] * 1_000)
    index.insert(
        JournalRecord(JournalRecordKind.RUN, 1, entry_ids=range(0, 2_000, 2), lengths=lengths)
    )
    (total,) = index.totals()
    assert total.size_bytes == 7_000
    assert Lengths.looked_at == 1_000


def test_batch_reads_of_many_records_go_on_in_portions_one_in_each_turn(
    metered: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry is in a different run from the one before it, so each has its own record."""
    monkeypatch.setattr(reads, "RECORDS_PER_PORTION", UNITS)
    machine = metered.machine
    for run in range(20):
        assert machine.add(7, range(run, 200 + run, 20), bytes(100)) is Code.OK
    find = reads.Reader.find

    def counted(self: reads.Reader, ledger_id: int, *others: int) -> Any:
        metered.count(f"records of {ledger_id}")
        return (yield from find(self, ledger_id, *others))

    monkeypatch.setattr(reads.Reader, "find", counted)
    for is_started_again in (False, True):  # from memory as far as it was kept; then from files
        if is_started_again:
            machine.stop()
            machine.start()
        answers: list[tuple[Code, Sequence[bytes]]] = []

        def note(
            code: Code,
            found: Sequence[bytes],
            answers: list[tuple[Code, Sequence[bytes]]] = answers,
        ) -> None:
            answers.append((code, found))

        for first in range(5):
            machine.serving.read_batch(StoredBatchRead(7, first, 0, 1 << 20), note)
        assert machine.read(7, 3)[0] is Code.OK
        assert len(answers) < 5, "one entry waits for no batch"
        machine.scheduler.run_until(partial(lambda answers: len(answers) == 5, answers))
        for code, found in answers:
            assert code is Code.OK
            ids = [int.from_bytes(one[8:16], "big") for one in found]
            assert ids == list(range(ids[0], 200))
        assert {len(found) for _, found in answers} == {196, 197, 198, 199, 200}
    assert metered.total["records of 7"] > 2 * 990
    assert metered.most["records of 7"] <= UNITS + 1  # and the one entry


def test_adds_that_come_again_are_compared_in_portions_one_in_each_turn(
    metered: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer resends a run whose answer was lost.

    Each of its thousands of entries is looked up.
    """
    monkeypatch.setattr(readings, "RECORDS_PER_TURN", UNITS)
    monkeypatch.setattr(reads, "RECORDS_PER_TURN", UNITS)
    machine = metered.machine
    runs = [add_request(7, range(first, first + 100), bytes(30)) for first in range(0, 500, 100)]
    runs += [add_request(7, (1_000 + number,), bytes(30)) for number in range(5 * UNITS)]
    read_entry = reads.Reader.read_entry

    def counted(self: reads.Reader, ledger_id: int, entry_id: int) -> Any:
        metered.count("entries compared")
        return (yield from read_entry(self, ledger_id, entry_id))

    monkeypatch.setattr(reads.Reader, "read_entry", counted)
    for is_repeated in (False, True):
        codes: list[Code] = []
        for run in runs:
            machine.serving.add(run, codes.append)
        machine.scheduler.run_until(partial(lambda codes: len(codes) == len(runs), codes))
        assert set(codes) == {Code.OK}
        assert machine.serving.counters.adds_repeated == is_repeated * len(runs)
    assert metered.total["entries compared"] == 500 + 5 * UNITS
    assert metered.most["entries compared"] <= UNITS


def test_large_adds_that_come_again_count_by_their_bytes(
    metered: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many large adds as small ones in one turn would block the loop for too long."""
    monkeypatch.setattr(adds, "COMPARED_BYTES", 100)
    machine, compare = metered.machine, readings.Readings.compare
    counts: list[int] = []

    def counted(self: readings.Readings, reading: Any, count: int) -> Any:
        counts.append(count)
        return compare(self, reading, count)

    monkeypatch.setattr(readings.Readings, "compare", counted)
    for ids, body in (((1,), bytes(480)), (range(2, 9), bytes(14)), ((1,), bytes(480))):
        assert machine.add(7, ids, body) is Code.OK
    assert machine.add(7, range(2, 9), bytes(14)) is Code.OK
    assert counts == [5, 7], "entries, or a hundred bytes each"


@pytest.mark.parametrize(
    ("is_batch", "size", "cost"),
    [(True, 1, 64), (False, 1, 1), (False, 15 * readings.RECORD_BYTES, 16)],
)
async def test_reads_whose_pages_come_at_once_go_on_one_after_the_other(
    is_batch: bool, size: int, cost: int
) -> None:
    """A device that hung, or a loop that was busy, answers hundreds of reads in the same turn."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    now, most, ended = 0, 0, 0

    class Cold:
        """A file of which nothing is in the page cache."""

        pins = 0

        def unpin(self) -> None:
            self.pins -= 1

        def read_now(self, _offset: int, _size: int) -> None:
            return None

        async def read(self, _offset: int, _size: int) -> bytes:
            await came.wait()
            return page

    page = bytes(size)

    def reading() -> Generator[entry_log_file.Need, bytes, None]:
        nonlocal now, most
        yield entry_log_file.Need(cast("PooledFile", Cold()), 0, size)
        now += cost
        most = max(most, now)

    def turn() -> None:
        nonlocal now
        now = 0
        if ended < 500:
            loop.call_soon(turn)

    def end(_result: object) -> None:
        nonlocal ended
        ended += 1

    driver = readings.Readings(OsTasks())
    for _ in range(500):
        driver.run(reading(), end, end, is_batch=is_batch)
    for _ in range(10):
        await asyncio.sleep(0)
    came.set()
    turn()
    async with asyncio.timeout(20):
        while ended < 500:  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0)
    assert most == readings.RECORDS_PER_TURN


def test_a_list_under_construction_holds_a_bounded_number_of_ranges(
    metered: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranges of files are joined when they are twice as many as the limit, and no further."""
    machine, count_max = metered.machine, 300
    for number in range(40):
        ids = range(number * 400, number * 400 + 400, 2)
        assert machine.add(7, ids, b"") is Code.OK
    keeper = machine.serving._keeper
    opened = sum(len(file.index.pieces_of(7)) for file in keeper.opened)
    assert len(list(keeper.finished)) >= 3
    alive: weakref.WeakSet[Spans] = weakref.WeakSet()
    most = 0

    class Counted(Spans):
        def extend(self, spans: Iterable[tuple[int, int]]) -> None:
            nonlocal most
            super().extend(spans)
            alive.add(self)
            most = max(most, sum(map(len, alive)))

    monkeypatch.setattr(reads, "Spans", Counted)
    monkeypatch.setattr(entry_log_file, "Spans", Counted)
    with pytest.raises(TooManyRangesError):
        machine.scheduler.run(machine.serving.entries_held(7, count_max), machine.host)
    of_files = 2 * count_max + opened + machine.settings.pieces_max
    assert of_files - machine.settings.pieces_max <= most <= of_files + count_max + UNITS
