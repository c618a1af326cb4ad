"""Sends adds, runs and fences on a raw socket, and waits for every answer."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from itertools import count

from ledgerlog_spark.model import DigestType
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.entry import EntryCodec
from ledgerlog_spark.wire.requests import encode_add_head, encode_add_run_head, encode_read
from tests.fixtures.stored_entries import encode_entry

FIRST_LEDGER = 0x1122_3344_5566_0000
KEY = master_key(b"")
LONE_ADDS = 200
PIPELINED_ADDS = 1_500
WINDOW = 64
RUNS = 100
RUN_ENTRIES = 16
FENCES = 20


@dataclass
class Load:
    """The requests that were sent, from which `Auditor` finds the request of an answer."""

    entry_ledgers: list[int] = field(default_factory=list)
    fenced_ledgers: list[int] = field(default_factory=list)
    runs: dict[tuple[int, int], range] = field(default_factory=dict)


def drive(port: int) -> Load:
    """Send everything to a bookie and wait for all answers."""
    load, codec = Load(), EntryCodec(DigestType.CRC32C)
    ids = count(FIRST_LEDGER)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as bookie:
        bookie.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lone, pipelined, runs = next(ids), next(ids), next(ids)
        load.entry_ledgers += [lone, pipelined, runs]
        for entry_id in range(LONE_ADDS):
            bookie.sendall(_add(codec, lone, entry_id))
            _take_answers(bookie, 1)
        for first in range(0, PIPELINED_ADDS, WINDOW):
            ids_sent = range(first, min(first + WINDOW, PIPELINED_ADDS))
            bookie.sendall(b"".join(_add(codec, pipelined, e) for e in ids_sent))
            _take_answers(bookie, len(ids_sent))
        for number in range(RUNS):
            entries = range(number * RUN_ENTRIES, (number + 1) * RUN_ENTRIES)
            load.runs[runs, entries[0]] = entries
            bookie.sendall(_run(codec, runs, entries))
            if number % 4 == 3:
                _take_answers(bookie, 4)
        for _ in range(FENCES):
            fenced = next(ids)
            load.fenced_ledgers.append(fenced)
            bookie.sendall(encode_read(fenced, -1, fence_key=KEY))
            _take_answers(bookie, 1)
    return load


def _stored(codec: EntryCodec, ledger_id: int, entry_id: int) -> bytes:
    payload = entry_id.to_bytes(8) * (16 + entry_id % 64)
    return b"".join(
        encode_entry(
            codec,
            ledger_id=ledger_id,
            entry_id=entry_id,
            last_add_confirmed=entry_id - 1,
            length=len(payload),
            payload=payload,
        )
    )


def _add(codec: EntryCodec, ledger_id: int, entry_id: int) -> bytes:
    stored = _stored(codec, ledger_id, entry_id)
    return encode_add_head(KEY, len(stored)) + stored


def _run(codec: EntryCodec, ledger_id: int, entries: range) -> bytes:
    stored = [_stored(codec, ledger_id, e) for e in entries]
    head = encode_add_run_head(
        ledger_id=ledger_id,
        entry_ids=entries,
        lengths=[len(s) for s in stored],
        request_id=entries[0],
        master_key=KEY,
    )
    return head + b"".join(stored)


def _take_answers(bookie: socket.socket, number: int) -> None:
    for _ in range(number):
        size = int.from_bytes(_exactly(bookie, 4))
        _exactly(bookie, size)


def _exactly(bookie: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = bookie.recv(size - len(parts))
        if not part:
            raise RuntimeError("the bookie closed the connection")
        parts += part
    return bytes(parts)
