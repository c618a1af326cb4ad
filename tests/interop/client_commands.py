"""Our client with the line commands of `InteropClient.java`.

`python -m tests.interop.client_commands URI`
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
import threading
from concurrent.futures import Future

import ledgerlog_spark as ll
from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.client.blocking.reader import BlockingReadHandle
from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import Code, DigestType, LedgerMetadata
from ledgerlog_spark.transport.port import ReadBatch
from tests.interop.payload import Source

CHUNK = 16
BATCH_SIZE_BYTES = 4 << 20
BATCH_TIMEOUT_MS = 10_000
DIGESTS = {"MAC": DigestType.HMAC}
_lock = threading.Lock()


def say(line: str) -> None:
    """Print one whole line, from any thread."""
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Commands:
    """The commands. Each method returns the text after `ok`."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client
        self._writers: dict[int, BlockingWriteHandle] = {}
        self._readers: dict[int, BlockingReadHandle] = {}

    def create(self, *words: str) -> str:
        ensemble, write_quorum, ack_quorum, digest, password, custom, _ = words
        handle = self._client.create_ledger(
            ensemble_size=int(ensemble),
            write_quorum=int(write_quorum),
            ack_quorum=int(ack_quorum),
            digest_type=DIGESTS.get(digest, digest),
            password=_bytes(password),
            custom_metadata={
                name: bytes.fromhex(value)
                for name, _, value in (pair.partition("=") for pair in custom.split(","))
                if name != "-"
            },
        )
        self._writers[handle.id] = handle
        return str(handle.id)

    def append(self, ledger: str, seed: str, count: str, sizes: str, outstanding: str) -> str:
        handle = self._writers[int(ledger)]
        source = Source.of_words(seed, sizes)
        window = int(outstanding)
        room = threading.Semaphore(window)
        failures: list[BaseException] = []

        def on_done(done: Future[int]) -> None:
            failure = done.exception()
            if failure is None:
                say(f"acked {done.result()}")
            else:
                failures.append(failure)
            room.release()

        first = handle.last_add_confirmed + 1
        end = first + int(count)
        for entry_id in range(first, end):
            room.acquire()
            if failures:
                room.release()
                break
            if (entry_id - first) % CHUNK == 0:
                say(f"sent {min(entry_id + CHUNK, end)}")
            handle.append_async(source.payload(entry_id)).add_done_callback(on_done)
        for _ in range(window):
            room.acquire()
        if failures:
            raise failures[0]
        return f"{handle.last_add_confirmed} {handle.length}"

    def close(self, ledger: str) -> str:
        closed = self._writers.pop(int(ledger)).close()
        return f"{closed.last_entry_id} {closed.length}"

    def recover(self, ledger: str, _digest: str, password: str) -> str:
        sealed = self._client.seal(int(ledger), password=_bytes(password))
        return f"{sealed.last_entry_id} {sealed.length}"

    def open(self, ledger: str, _digest: str, password: str) -> str:
        handle = self._client.open_ledger(int(ledger), password=_bytes(password))
        self._readers[handle.id] = handle
        return str(handle.last_add_confirmed)

    def refresh(self, ledger: str) -> str:
        return str(self._readers[int(ledger)].refresh())

    def read(self, ledger: str, first: str, last: str, _how: str) -> str:
        for entry in self._readers[int(ledger)].read(int(first), int(last)):
            digest = hashlib.sha256(entry.payload).hexdigest()
            say(f"entry {entry.entry_id} {len(entry.payload)} {digest}")
        return ""

    def batch(self, ledger: str, bookie_id: str, count: str, overhead_bytes: str) -> str:
        """The entries from 0 on in one answer of one bookie, without their headers."""
        request = ReadBatch(int(ledger), 0, int(count), BATCH_SIZE_BYTES)

        async def ask(client: LedgerClient) -> tuple[Code, list[bytes]]:
            replied = asyncio.get_running_loop().create_future()
            client.services.transport.read_batch(
                bookie_id,
                request,
                BATCH_TIMEOUT_MS,
                lambda code, entries: replied.set_result((code, list(entries))),
            )
            code, entries = await replied
            return code, entries

        code, entries = self._client.run(ask)
        for entry in entries:
            payload = bytes(entry[int(overhead_bytes) :])
            entry_id = int.from_bytes(entry[8:16])
            say(f"entry {entry_id} {len(payload)} {hashlib.sha256(payload).hexdigest()}")
        return code.name

    def metadata(self, ledger: str) -> str:
        return json.dumps(_described(self._client.ledger_metadata(int(ledger))))

    def delete(self, ledger: str) -> str:
        self._client.delete_ledger(int(ledger))
        return ""

    def list(self) -> str:
        return " ".join(map(str, self._client.list_ledgers()))


def _described(metadata: LedgerMetadata) -> dict[str, object]:
    quorum = metadata.quorum
    digest = metadata.digest_type
    return {
        "quorum": [quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum],
        "state": metadata.state.name,
        "last_entry_id": metadata.last_entry_id,
        "length": metadata.length,
        "digest": "MAC" if digest is DigestType.HMAC else digest.name,
        "password": metadata.password.hex(),
        "created_ms": metadata.created_ms,
        "format": metadata.format_version,
        "custom": {name: value.hex() for name, value in metadata.custom.items()},
        "fragments": [[f.first_entry_id, list(f.ensemble)] for f in metadata.fragments],
    }


def _bytes(word: str) -> bytes:
    return b"" if word == "-" else bytes.fromhex(word)


def main() -> int:
    """Answer commands until standard input ends."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with ll.connect(sys.argv[1]) as client:
        commands = Commands(client)
        say("ok ready")
        for line in sys.stdin:
            name, *words = line.split()
            try:
                say(f"ok {getattr(commands, name)(*words)}".rstrip())
            except LedgerLogError as error:
                say(f"error {type(error).__name__} " + " ".join(str(error).split()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
