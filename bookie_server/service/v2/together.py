"""Carries out requests that arrive together: adds as runs, and plain reads as stretches.

If a request cannot be handled together with others, `service/v2/operations.py` handles it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from bookie_server.core.requests import EntryIds, StoredReads
from bookie_server.service.limits.budget import Share
from bookie_server.service.limits.lanes import (
    QUANTUM_BYTES,
    REQUEST_COST_BYTES,
    REQUEST_OVERHEAD_BYTES,
    WRITE_COST_BYTES,
)
from bookie_server.service.v2.connection import UNSENT_BYTES_MAX, PeerConnection
from bookie_server.service.v2.receive_memory import OPCODE_OFFSET
from bookie_server.service.v2.segments import (
    TOGETHER_FRAMES_MIN,
    Segment,
    SegmentRun,
    Together,
    ids_read,
)
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import encode_add_answers, encode_read_answers, encode_refusal
from ledgerlog_spark.wire.opcodes import Opcode
from ledgerlog_spark.wire.requests import RefusedRequest

ADD: Final = int(Opcode.ADD)
READ: Final = int(Opcode.READ)
ALLOWANCE_BYTES_MIN: Final = 65_536
"""Number of bytes. If the lane allows fewer bytes, plain reads are handled one at a time."""
ALLOWANCE_PARTS: Final = 4
"""Reads that are handled together take at most 1/4 of the allowed bytes. The remaining bytes are
reserved for an answer that is larger than expected. Without this reserve, the answer would be
BUSY."""
GATHERED_BYTES_MIN: Final = 8_192
"""Average size in bytes. If the buffers of an answer are larger on average, they are passed to the
kernel without being joined."""


class TogetherConnection(PeerConnection):
    """Handles adds and plain reads that arrive together. A subclass handles all other requests."""

    def _handle_together(
        self, bodies: Sequence[memoryview], start: int, count_max: int
    ) -> Together | None:
        if len(bodies) - start < TOGETHER_FRAMES_MIN or self._granted is not None:
            return None
        opcode = bodies[start][OPCODE_OFFSET]
        if opcode == ADD:
            return self._add_together(bodies, start, count_max)
        return self._read_together(bodies, start, count_max) if opcode == READ else None

    # Adds.

    def _add_together(
        self, bodies: Sequence[memoryview], start: int, count_max: int
    ) -> Together | None:
        writes, adds = self.shares.writes, self.shares.adds
        if writes.is_waiting or adds.is_waiting or adds.unsent_bytes > UNSENT_BYTES_MAX:
            return None
        # The lane `adds` counts the frames from their arrival. It also counts the copies of the
        # runs.
        room_bytes = min(writes.allowance_bytes, adds.allowance_bytes)
        segment = Segment(bodies, start, count_max, room_bytes)
        if segment.count < TOGETHER_FRAMES_MIN:
            return None
        copies_bytes = sum(run.cost_bytes for run in segment.runs)
        writes_bytes = copies_bytes + WRITE_COST_BYTES * len(segment.runs)
        if not writes.take(writes_bytes):
            return None
        if not adds.take(copies_bytes):
            writes.give_back(writes_bytes)
            return None
        self.open_requests += segment.count
        refused = [run for run in segment.runs if not self._store_run(run, segment)]
        left = segment.frames_of(refused, bodies, start)
        for run in refused:
            writes.give_back(run.cost_bytes + WRITE_COST_BYTES)
            adds.give_back(run.cost_bytes)
        self.open_requests -= len(left)
        cost_bytes = REQUEST_COST_BYTES * len(segment.runs) + copies_bytes
        return Together(cost_bytes, segment.count - len(left), start + segment.count, left)

    def _store_run(self, run: SegmentRun, segment: Segment) -> bool:
        """Store a run and return True. Return False if its adds must be handled one at a time."""
        if run.ledger_id in segment.refused:
            return False  # an earlier run of this ledger must be stored first
        add = run.to_add(self.peer)
        stored = partial(
            self._run_stored, add.ledger_id, add.entry_ids, run.version, run.cost_bytes
        )
        if not self._shared.storage.add_together(add, stored):
            segment.refused.add(run.ledger_id)
            return False
        counters = self._shared.counters
        counters.add_requests += len(run.frames)
        counters.add_entries += len(run.frames)
        counters.add_bytes += sum(map(len, run.frames))
        return True

    def _run_stored(
        self, ledger_id: int, entry_ids: EntryIds, version: int, cost_bytes: int, code: Code
    ) -> None:
        answers = encode_add_answers(code, ledger_id, entry_ids, version=version)
        taken_bytes = cost_bytes + WRITE_COST_BYTES
        self._answer(code, answers, self.shares.writes, taken_bytes, count=len(entry_ids))
        self.shares.adds.give_back(cost_bytes)

    # Reads.

    def _read_together(
        self, bodies: Sequence[memoryview], start: int, count_max: int
    ) -> Together | None:
        share = self.shares.reads
        if share.is_waiting or share.unsent_bytes > UNSENT_BYTES_MAX:
            return None
        of_one = self._read_reserve.size_bytes
        allowance_bytes = share.allowance_bytes
        if allowance_bytes < ALLOWANCE_BYTES_MIN:
            return None
        room = min(allowance_bytes // ALLOWANCE_PARTS, QUANTUM_BYTES) // of_one
        version, ledger_id, ids = ids_read(bodies, start, min(count_max, room))
        if len(ids) < TOGETHER_FRAMES_MIN or not share.take(of_one * len(ids)):
            return None
        self.open_requests += len(ids)
        begun = self._shared.storage.read_together(
            StoredReads(
                ledger_id, ids, (of_one - REQUEST_OVERHEAD_BYTES) * len(ids), peer=self.peer
            ),
            partial(self._some_read, version, ledger_id, share, of_one),
        )
        self.open_requests -= len(ids) - begun
        share.give_back(of_one * (len(ids) - begun))
        self._shared.counters.read_requests += begun
        return Together(REQUEST_COST_BYTES + of_one * begun, begun, start + begun, ())

    def _some_read(
        self,
        version: int,
        ledger_id: int,
        share: Share,
        of_one: int,
        code: Code,
        ids: Sequence[int],
        entries: Sequence[bytes],
    ) -> None:
        """Answer some of the reads. For each read, `of_one` bytes were taken."""
        count, taken_bytes = len(ids), of_one * len(ids)
        size_bytes = sum(map(len, entries))
        self._read_reserve.learn(max(map(len, entries), default=0))
        needed_bytes = size_bytes + REQUEST_OVERHEAD_BYTES * count
        held_bytes = self._make_fit(share, taken_bytes, needed_bytes)
        if not held_bytes and count > 1:
            for entry_id, entry in zip(ids, entries, strict=True):
                self._some_read(version, ledger_id, share, of_one, code, (entry_id,), (entry,))
            return
        if not held_bytes:
            busy = RefusedRequest(version, Opcode.READ, ledger_id, ids[0], None, Code.BUSY)
            self._answer(Code.BUSY, encode_refusal(busy), share, taken_bytes)
            return
        counters = self._shared.counters
        counters.read_entries += len(entries)
        counters.read_bytes += size_bytes
        buffers = encode_read_answers(code, ledger_id, ids, entries, version=version)
        if size_bytes <= len(buffers) * GATHERED_BYTES_MIN:
            buffers = [b"".join(buffers)]
        self._answer(code, buffers[0], share, held_bytes, *buffers[1:], count=count)
