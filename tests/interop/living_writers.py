"""A writer that lives: closes its ledger, is followed by readers, or is fenced."""

from __future__ import annotations

import re
import time
from functools import partial

from tests.interop.client_process import ClientError, ClientProcess
from tests.interop.stage import (
    DIGESTS,
    JAVA,
    KINDS,
    OURS,
    STRIPED,
    WHOLE,
    Scenario,
    Shape,
    Stage,
    Written,
    expect,
)

ENTRIES = 300
BURSTS = 12
BURST = 60
SIZES = (0, 1, 1 << 20, 5_000_000, 0, 31)
LARGE_LEDGER_ID = 3_000_000_000
PATIENCE_SECONDS = 15.0
ALL_COPIES = Shape(3, 3, 3)
CRC32C_OVERHEAD_BYTES = 32 + 4
REFUSED = re.compile("Fenced|LedgerClosed|LedgerRecovery")
GONE = re.compile("NoSuchLedger|LedgerNotFound")
WRONG_PASSWORD = re.compile("Unauthorized")
PAIRS = ((JAVA, OURS), (OURS, JAVA))


def living_writers() -> list[Scenario]:
    """All scenarios, for either kind of bookie."""
    closing = [
        Scenario(
            f"{writer} writes and closes, both read",
            f"{shape} {digest}",
            partial(_closes, writer=writer, shape=shape, digest=digest),
        )
        for writer in KINDS
        for shape in (WHOLE, STRIPED)
        for digest in DIGESTS
    ]
    pairs = [
        scenario
        for writer, other in PAIRS
        for scenario in (
            Scenario(
                f"{other} follows while {writer} writes",
                f"{WHOLE} CRC32C",
                partial(_followed, writer=writer, reader=other, shape=WHOLE),
            ),
            Scenario(
                f"{other} follows while {writer} writes",
                f"{STRIPED} CRC32C",
                partial(_followed, writer=writer, reader=other, shape=STRIPED),
            ),
            Scenario(
                f"{other} fences {writer}",
                f"{STRIPED} CRC32C",
                partial(_fenced, writer=writer, recoverer=other),
            ),
            Scenario(
                f"{writer} writes 0 bytes to 5 MB, both read",
                f"{WHOLE} CRC32C",
                partial(_closes, writer=writer, shape=WHOLE, digest="CRC32C", sizes=SIZES),
            ),
            Scenario(
                f"{other} has the wrong password",
                f"{WHOLE} CRC32",
                partial(_wrong_password, writer=writer, other=other),
            ),
            Scenario(
                f"{writer} deletes, {other} finds nothing",
                f"{WHOLE} DUMMY",
                partial(_deleted, writer=writer, other=other),
            ),
        )
    ]
    scattered = [
        Scenario(
            f"java adds out of order, id above 2^31, {ending}",
            f"{STRIPED} CRC32C",
            partial(_scattered, recoverer=recoverer),
        )
        for ending, recoverer in (
            ("closes", None),
            ("ours recovers", OURS),
            ("java recovers", JAVA),
        )
    ]
    batches = Scenario(
        "java writes, ours takes one batch from each bookie",
        f"{ALL_COPIES} CRC32C",
        _batch_from_each_bookie,
    )
    return [*closing, *pairs, *scattered, batches]


def _closes(
    stage: Stage, writer: str, shape: Shape, digest: str, sizes: tuple[int, ...] = ()
) -> None:
    ledger = stage.create(stage.clients.staying(writer), shape, digest, sizes=sizes)
    ledger.append(len(sizes) or ENTRIES, outstanding=8 if sizes else ENTRIES)
    ledger.writer.finish()
    last, length = map(int, ledger.writer.ask("close", ledger.id))
    expect(last, (len(sizes) or ENTRIES) - 1, "last entry of the closed ledger")
    stage.compare_closed(ledger, last, length)


def _followed(stage: Stage, writer: str, reader: str, shape: Shape) -> None:
    ledger = stage.create(stage.clients.staying(writer), shape, "CRC32C")
    follower = stage.clients.staying(reader)
    expect(follower.ask("open", *ledger.credentials), ["-1"], "end of a ledger without entries")
    seen = -1
    for _ in range(BURSTS):
        settled = ledger.writer.acknowledged
        ledger.append(BURST, outstanding=16)
        seen = _follow(stage, ledger, follower, seen)
        ledger.writer.finish()
        seen = _follow(stage, ledger, follower, seen)
        if seen < settled:  # each entry of this burst carries it
            raise AssertionError(f"{reader} saw entry {seen}; {settled} was confirmed long before")
    last, length = map(int, ledger.writer.ask("close", ledger.id))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while seen < last and time.monotonic() < deadline:
        seen = _follow(stage, ledger, follower, seen)
    expect(seen, last, f"end of the closed ledger as {reader} followed it")
    stage.compare_closed(ledger, last, length)


def _follow(stage: Stage, ledger: Written, follower: ClientProcess, seen: int) -> int:
    """Read the readable entries, and return the last entry."""
    end = int(follower.ask("refresh", ledger.id)[0])
    if end < seen:
        raise AssertionError(f"the last add confirmed fell from {seen} to {end}")
    if end > seen:
        got = follower.read(ledger.id, seen + 1, end)
        stage.compare(ledger, range(seen + 1, end + 1), got)
    return end


def _fenced(stage: Stage, writer: str, recoverer: str) -> None:
    ledger = stage.create(stage.clients.staying(writer), STRIPED, "CRC32C")
    ledger.append(1_000_000, outstanding=64)
    ledger.writer.wait_for(200)
    client = stage.clients.staying(recoverer)
    last, length = map(int, client.ask("recover", *ledger.credentials))
    _expect_refusal(REFUSED, ledger.writer)
    ledger.append(1)
    _expect_refusal(REFUSED, ledger.writer)
    stage.compare_closed(ledger, last, length, recoverers=(recoverer,))


def _wrong_password(stage: Stage, writer: str, other: str) -> None:
    ledger = stage.create(stage.clients.staying(writer), WHOLE, "CRC32")
    ledger.append(ENTRIES)
    ledger.writer.finish()
    client = stage.clients.staying(other)
    for command in ("open", "recover"):
        client.begin(command, ledger.id, ledger.digest, b"another".hex())
        _expect_refusal(WRONG_PASSWORD, client)
    ledger.append(ENTRIES)  # no client fenced it
    ledger.writer.finish()
    last, length = map(int, ledger.writer.ask("close", ledger.id))
    expect(last, 2 * ENTRIES - 1, "last entry of the closed ledger")
    stage.compare_closed(ledger, last, length)


def _deleted(stage: Stage, writer: str, other: str) -> None:
    ledger = stage.create(stage.clients.staying(writer), WHOLE, "DUMMY")
    ledger.append(ENTRIES)
    ledger.writer.finish()
    last, length = map(int, ledger.writer.ask("close", ledger.id))
    stage.compare_closed(ledger, last, length)
    listed = [set(stage.clients.staying(kind).ask("list")) for kind in KINDS]
    expect(listed[1], listed[0], "ledgers as ours lists them, beside Java's")
    expect(str(ledger.id) in listed[0], True, "whether the ledger is listed")
    ledger.writer.ask("delete", ledger.id)
    client = stage.clients.staying(other)
    client.begin("open", *ledger.credentials)
    _expect_refusal(GONE, client)


def _batch_from_each_bookie(stage: Stage) -> None:
    """Read batches directly, without the reader, which has other ways to read."""
    ledger = stage.create(stage.clients.staying(JAVA), ALL_COPIES, "CRC32C")
    ledger.append(ENTRIES)
    ledger.writer.finish()
    ours = stage.clients.staying(OURS)
    for bookie_id in ledger.created["fragments"][-1][1]:
        answer, got = ours.collect("batch", ledger.id, bookie_id, ENTRIES, CRC32C_OVERHEAD_BYTES)
        expect(answer, ["OK"], f"code from {bookie_id}")
        stage.compare(ledger, range(ENTRIES), got)
    last, length = map(int, ledger.writer.ask("close", ledger.id))
    stage.compare_closed(ledger, last, length)


def _scattered(stage: Stage, recoverer: str | None) -> None:
    writer = stage.clients.staying(JAVA)
    ledger_id = LARGE_LEDGER_ID + stage.number
    ledger = stage.create(writer, STRIPED, "CRC32C", ledger_id=ledger_id)
    last, length = map(int, writer.ask("scatter", ledger.id, ledger.source.seed, ENTRIES))
    expect(last, ENTRIES - 1, "last entry added")
    if recoverer is None:
        last, length = map(int, writer.ask("close", ledger.id))
        stage.compare_closed(ledger, last, length)
        return
    # An entry's length counts all earlier adds, here also of entries that follow it: a recovered
    # length is off by some of them, whoever recovers.
    client = stage.clients.staying(recoverer)
    last, length = map(int, client.ask("recover", *ledger.credentials))
    expect(last, ENTRIES - 1, "last entry of the recovered ledger")
    stage.compare_closed(ledger, last, length, is_length_known=False)


def _expect_refusal(wanted: re.Pattern[str], client: ClientProcess) -> None:
    try:
        answer = client.finish()
    except ClientError as error:
        if not wanted.search(error.name):
            raise
    else:
        raise AssertionError(f"the {client.kind} client was not refused but told {answer}")
