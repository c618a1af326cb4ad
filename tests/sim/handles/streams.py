"""Runs of a stream that commit ranges of ledgers to one log, and others that seal these ledgers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    CommitUnknownError,
    ConcurrentCommitError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LogNotFoundError,
    ProducerFencedError,
    StaleCheckpointError,
)
from ledgerlog_spark.log.committing.commits import KnownLogs
from ledgerlog_spark.log.committing.stream_ledgers import StreamLedgers
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.state.records import WriteMode
from tests.sim.handles.actors import ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.log.committing.range_writer import RangeWriter
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.protocol.log.state.records import StagedRange
    from tests.sim.handles.process import Process
    from tests.sim.handles.world import HandleWorld

NAME = "table"
APP = "stream"
SCHEMA = b"one column"
BATCHES = 6
PENDING_SMALL = 3_000
"""Maximum number of unacknowledged bytes of a range in this simulation."""


class Table:
    """The known facts about the log.

    Attributes:
        batches: By batch id, the payloads of each attempt, and the result of its commit.
        runs: All runs that ever began.
        ledgers: All ledgers that ranges were written to.
        sealed: The ledgers that another process began to seal.
    """

    def __init__(self, world: HandleWorld) -> None:
        self.world = world
        self.batches: dict[int, list[Attempt]] = {}
        self.runs = 0
        self.ledgers: list[int] = []
        self.sealed: set[int] = set()
        self.rows: dict[bytes, int] = {}
        self.is_there = False

    async def check_whole(self, process: Process) -> None:
        """Check that each batch is in the log once and whole or not at all, and nothing else is."""
        if not self.is_there:
            return
        log = await process.client.logs.open(NAME)
        snapshot = await log.snapshot()
        found: list[bytes] = []
        for item in snapshot.items:
            entries: list[Any] = []
            async for batch in log.read_range(
                item.ledger_id, item.first_entry_id, item.last_entry_id
            ):
                entries += batch
            there = [(entry.entry_id, bytes(entry.payload)) for entry in entries]
            for entry_id, payload in there:
                is_index = payload.startswith(b"index")
                self.world.require(
                    is_index == (entry_id == item.index_entry_id),
                    f"{payload!r} is entry {entry_id} of {item}",
                )
            found_here = [payload for _, payload in there if not payload.startswith(b"index")]
            rows = sum(self.rows.get(payload, 0) for payload in found_here)
            self.world.require(rows == item.rows, f"{item} has {rows} rows")
            found += found_here
        self._check(found)

    def _check(self, found: list[bytes]) -> None:
        left = list(found)
        for batch_id in sorted(self.batches):
            attempts = self.batches[batch_id]
            there = [each for each in attempts if each.payloads and each.payloads[0] in left]
            self.world.require(len(there) <= 1, f"batch {batch_id} is there {len(there)} times")
            is_due = any(each.is_committed for each in attempts)
            self.world.require(bool(there) or not is_due, f"batch {batch_id} is lost")
            for attempt in there:
                self.world.require(not attempt.is_failed, f"batch {batch_id} failed, and is there")
                size = len(attempt.payloads)
                head, left = left[:size], left[size:]
                self.world.require(
                    head == attempt.payloads,
                    f"batch {batch_id} is {_names(head)}, not {_names(attempt.payloads)}",
                )
        self.world.require(not left, f"{left[:3]} belong to no batch")


class Attempt:
    """One attempt of a run to write a batch."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.is_committed = False
        self.is_failed = False


async def stream(process: Process, table: Table, after_ms: int) -> None:
    """Run the query in one process, batch after batch."""
    await asyncio.sleep(after_ms / 1e3)
    world = process.world
    table.runs += 1
    number = table.runs
    ledgers, known = StreamLedgers(), KnownLogs()
    first = max(table.batches, default=0)  # its checkpoint has no later batch
    for batch_id in range(first, first + BATCHES):
        for _ in range(3):
            if process.is_over or not world.is_busy:
                break
            attempt = Attempt()
            table.batches.setdefault(batch_id, []).append(attempt)
            try:
                await _batch(process, table, ledgers, known, f"q/{number}", batch_id, attempt)
                break
            except (LedgerFencedError, LedgerClosedError) as error:
                # A task attempt failed, so the driver begins the batch again.
                world.require(bool(table.sealed), f"nobody sealed a ledger: {error!r}")
                attempt.is_failed = True
            except (ProducerFencedError, StaleCheckpointError, ConcurrentCommitError) as error:
                attempt.is_failed = True
                is_behind = process.tree.returns > 0  # it may not see its own registration
                world.require(
                    table.runs > 1 or is_behind, f"nobody replaced run {number}: {error!r}"
                )
                await _close(process, ledgers)
                return
            except LogNotFoundError as error:
                world.require(not table.is_there, f"{error!r}")
                return
            except LedgerLogError as error:
                world.judge(process, error, None)
                await asyncio.sleep(0.3)
    await _close(process, ledgers)


async def _close(process: Process, ledgers: StreamLedgers) -> None:
    if not process.is_over:
        await ended(process, "close of a stream's ledgers", ledgers.close())


async def _batch(
    process: Process,
    table: Table,
    ledgers: StreamLedgers,
    known: KnownLogs,
    run: str,
    batch_id: int,
    attempt: Attempt,
) -> None:
    world, random = process.world, process.world.random
    log: Log = await ended(
        process,
        "open or create",
        process.client.logs.open_or_create(NAME, properties={"rollBytes": "9000"}),
    )
    table.is_there = True
    begun: Job = await ended(
        process,
        "begin",
        log.begin(
            schema=SCHEMA,
            mode=WriteMode.APPEND,
            app=APP,
            batch_id=batch_id,
            run=run,
            kind=JobKind.STREAM,
        ),
    )
    if begun.is_replay:
        attempt.is_failed = True
        return
    await ended(process, "join", ledgers.join(log.commits, begun))
    ranges: list[StagedRange] = []
    for task in range(random.randint(1, 2)):
        name = b"%s:%d:%d:%d:" % (run.encode(), batch_id, len(table.batches[batch_id]), task)
        payloads = [
            name + b"%d:" % number + bytes(random.choice((0, 20, 300, 1_500)))
            for number in range(random.randint(1, 7))
        ]
        attempt.payloads += payloads
        table.rows.update((payload, random.randint(1, 9)) for payload in payloads)
        ranges += await _task(process, table, ledgers, log, begun, payloads)
    for _ in range(4):
        try:
            await ended(process, "commit", log.commit(begun, ranges, known=known))
        except CommitUnknownError as error:
            world.judge(process, error, None)
            continue
        attempt.is_committed = True
        world.counts["batches committed"] += 1
        return


async def _task(
    process: Process,
    table: Table,
    ledgers: StreamLedgers,
    log: Log,
    begun: Job,
    payloads: Sequence[bytes],
) -> list[StagedRange]:
    """Write the rows of a task. If another process seals the ledger, continue in a new ledger."""
    done: list[StagedRange] = []
    for _ in range(3):
        writer = await ended(process, "open_range", ledgers.open_range(log.commits, begun))
        table.ledgers.append(writer.ledger_id)
        left = list(payloads)
        try:
            written = await _write(process, table, writer, left)
        except (LedgerFencedError, LedgerClosedError):
            written, again = await ended(process, "cut", writer.cut())
            process.world.counts["ranges cut"] += 1
            payloads = [*again, *left]
            if written is not None:
                done.append(written)
            if not payloads:
                return done
            continue
        assert written is not None
        return [*done, written]
    raise LedgerFencedError("sealed three times in a row", ledger_id=-1)


async def _write(
    process: Process, table: Table, writer: RangeWriter, left: list[bytes]
) -> StagedRange | None:
    """Append payloads, and remove them from `left`."""
    random, count = process.world.random, len(left)
    while left:
        payload = left.pop(0)
        await ended(process, "append of rows", writer.append(payload, table.rows[payload]))
        kept = writer._pending_size_bytes
        process.world.require(kept <= PENDING_SMALL, f"{kept} bytes of a range are on their way")
        if random.random() < 0.3:
            await asyncio.sleep(random.uniform(0, 0.05))
    index = b"index of %d" % count if random.random() < 0.4 else None
    return await ended(process, "finish", writer.finish(index))


def _names(payloads: Sequence[bytes]) -> list[bytes]:
    return [payload[:20].rstrip(b"\0") for payload in payloads]


async def seal_one(process: Process, table: Table) -> None:
    """Seal a ledger of the stream, as a run that takes over does, or an operator."""
    world = process.world
    if not table.ledgers:
        return
    ledger_id = world.random.choice(table.ledgers[-3:])
    table.sealed.add(ledger_id)
    try:
        log = await ended(process, "open", process.client.logs.open(NAME))
        await ended(process, "seal of a range", log.seal(ledger_id))
    except LedgerLogError as error:
        world.judge(process, error, None)
