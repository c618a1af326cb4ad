"""A writer is killed with adds in flight; a client of the same or of the other kind recovers."""

from __future__ import annotations

import contextlib
from functools import partial

from tests.interop.client_process import ClientError
from tests.interop.stage import (
    DIGESTS,
    JAVA,
    OURS,
    OUTSTANDING,
    STRIPED,
    WHOLE,
    Scenario,
    Shape,
    Stage,
    Written,
    expect,
)

ENDLESS = 1_000_000
BATCHING = "java-batches"


def dying_writers(roles: tuple[tuple[str, str], ...]) -> list[Scenario]:
    """Scenarios for each pair of writer and recoverer, with every digest type, striped and not."""
    matrix = [
        Scenario(
            f"{writer} dies, {recoverer} recovers",
            f"{shape} {digest}",
            partial(_dies, writer=writer, recoverer=recoverer, shape=shape, digest=digest),
        )
        for writer, recoverer in roles
        for shape in (WHOLE, STRIPED)
        for digest in DIGESTS
    ]
    return [*matrix, *_more_recoveries()]


def _more_recoveries() -> list[Scenario]:
    batching = [
        Scenario(
            f"{writer} dies, java recovers in batches",
            f"{WHOLE} CRC32C",
            partial(_dies, writer=writer, recoverer=BATCHING, shape=WHOLE, digest="CRC32C"),
        )
        for writer in (JAVA, OURS)
    ]
    together = [
        Scenario(
            f"{writer} dies, both recover at once",
            f"{shape} CRC32C",
            partial(_both_recover, writer=writer, shape=shape),
        )
        for writer, shape in ((JAVA, STRIPED), (OURS, WHOLE))
    ]
    empty = [
        Scenario(
            f"{writer} dies before its first add, {other} recovers",
            f"{WHOLE} MAC",
            partial(_dies_empty, writer=writer, recoverer=other),
        )
        for writer, other in ((JAVA, OURS), (OURS, JAVA))
    ]
    return [*batching, *together, *empty]


def killed_while_appending(stage: Stage, writer: str, shape: Shape, digest: str) -> Written:
    """Return a ledger whose writer was killed while adds were in flight."""
    ledger = stage.create(stage.clients.mortal(writer), shape, digest)
    ledger.append(ENDLESS)
    ledger.writer.wait_for(OUTSTANDING + stage.number * 37 % 700)
    ledger.kill_writer(stage.tally)
    return ledger


def recover(stage: Stage, ledger: Written, recoverer: str) -> None:
    """Recover and compare. A second recovery must change nothing."""
    client = stage.clients.staying(recoverer)
    last, length = map(int, client.ask("recover", *ledger.credentials))
    again = client.ask("recover", *ledger.credentials)
    expect(again, [str(last), str(length)], "end of the ledger after another recovery")
    stage.compare_closed(ledger, last, length, recoverers=(recoverer,))


def _dies(stage: Stage, writer: str, recoverer: str, shape: Shape, digest: str) -> None:
    recover(stage, killed_while_appending(stage, writer, shape, digest), recoverer)


def _both_recover(stage: Stage, writer: str, shape: Shape) -> None:
    ledger = killed_while_appending(stage, writer, shape, "CRC32C")
    both = [stage.clients.staying(kind) for kind in (JAVA, OURS)]
    for client in both:
        client.begin("recover", *ledger.credentials)
    for client in both:
        # One client may lose the race for the metadata. Its second attempt must succeed.
        with contextlib.suppress(ClientError):
            client.finish()
    ends = [client.ask("recover", *ledger.credentials) for client in both]
    expect(ends[1], ends[0], "end of the ledger as ours recovered it, beside Java's")
    last, length = map(int, ends[0])
    stage.compare_closed(ledger, last, length, recoverers=(JAVA, OURS))


def _dies_empty(stage: Stage, writer: str, recoverer: str) -> None:
    ledger = stage.create(stage.clients.mortal(writer), WHOLE, "MAC")
    ledger.writer.kill()
    last, length = map(int, stage.clients.staying(recoverer).ask("recover", *ledger.credentials))
    expect((last, length), (-1, 0), "end of an empty ledger")
    stage.compare_closed(ledger, last, length)
