"""Apache's client with its default settings uses version 3, which our bookies refuse."""

from __future__ import annotations

import re
import time

from tests.interop.client_process import ClientError, ClientProcess
from tests.interop.stage import JAVA, WHOLE, Scenario, Stage, expect

VERSION_3 = "java, version 3"
ENTRIES = 20
TIMEOUT_SECONDS = 10.0
"""Time limit of the client's adds and reads, as in InteropClient.java."""
REFUSED = re.compile("Protocol|Unauthorized|Read|Recovery", re.IGNORECASE)


def version_3() -> list[Scenario]:
    """Write, read and recover. After each of these, clients of version 2 continue."""
    return [
        Scenario("java without useV2WireProtocol writes", f"{WHOLE} CRC32C", _writes),
        Scenario("java without useV2WireProtocol reads", f"{WHOLE} CRC32C", _reads),
        Scenario("java without useV2WireProtocol recovers", f"{WHOLE} CRC32C", _recovers),
    ]


def _writes(stage: Stage) -> None:
    client = stage.clients.staying(VERSION_3)
    ledger = stage.create(client, WHOLE, "CRC32C")
    seed, sizes = ledger.source.words
    _expect_refusal(client, "append", ledger.id, seed, 1, sizes, 1)
    expect(client.acknowledged, -1, "entries that were acknowledged")
    _check_that_bookies_live(stage)


def _reads(stage: Stage) -> None:
    ledger = stage.create(stage.clients.staying(JAVA), WHOLE, "CRC32C")
    ledger.append(ENTRIES)
    ledger.writer.finish()
    last, length = map(int, ledger.writer.ask("close", ledger.id))
    client = stage.clients.staying(VERSION_3)
    client.ask("open", *ledger.credentials)  # the metadata of a closed ledger is enough
    _expect_refusal(client, "read", ledger.id, 0, last, "single")
    stage.compare_closed(ledger, last, length)


def _recovers(stage: Stage) -> None:
    ledger = stage.create(stage.clients.staying(JAVA), WHOLE, "CRC32C")
    ledger.append(ENTRIES)
    ledger.writer.finish()
    _expect_refusal(stage.clients.staying(VERSION_3), "recover", *ledger.credentials)
    last, length = map(int, stage.clients.staying(JAVA).ask("recover", *ledger.credentials))
    expect(last, ENTRIES - 1, "last entry of the recovered ledger")
    stage.compare_closed(ledger, last, length)


def _expect_refusal(client: ClientProcess, *words: object) -> None:
    began = time.monotonic()
    try:
        answer = client.ask(*words)
    except ClientError as error:
        if not REFUSED.search(error.name):
            raise
    else:
        raise AssertionError(f"{words[0]} was not refused but told {answer}")
    seconds = time.monotonic() - began
    if seconds > TIMEOUT_SECONDS:
        raise AssertionError(f"{words[0]} was refused after {seconds:.1f} s")


def _check_that_bookies_live(stage: Stage) -> None:
    ledger = stage.create(stage.clients.staying(JAVA), WHOLE, "CRC32C")
    ledger.append(ENTRIES)
    ledger.writer.finish()
    last, length = map(int, ledger.writer.ask("close", ledger.id))
    stage.compare_closed(ledger, last, length)
