"""Frames in any receptions get the answers, and leave the state, of one frame at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from ledgerlog_spark.wire.opcodes import Flag
from ledgerlog_spark.wire.requests import (
    encode_add_head,
    encode_batch_read,
    encode_read,
    encode_tell_lac,
)
from tests.crash.machine import KEY, entry
from tests.fixtures.bookie_process import add_run_frame
from tests.fixtures.v2_machine import V2Machine

if TYPE_CHECKING:
    from collections.abc import Sequence

LEDGERS = st.sampled_from((7, 7, 8, 9))
IDS = st.integers(0, 15)
OTHER_KEY = bytes(20)
FRAMES_MAX = 40
"""All frames fit into one turn. So no read waits for a later turn, in which more is durable."""


@st.composite
def adds(draw: st.DrawFn) -> bytes:
    """Consecutive ids are frequent, and so are plain adds."""
    ledger_id, entry_id = draw(LEDGERS), draw(IDS)
    count = draw(st.sampled_from((1, 1, 2, 5)))
    payload = draw(st.sampled_from((b"", b"a", b"b" * 700)))
    key = draw(st.sampled_from((KEY, KEY, KEY, KEY, OTHER_KEY)))
    flags = draw(st.sampled_from((0, 0, 0, 0, Flag.RECOVERY_ADD, Flag.HIGH_PRIORITY)))
    lac = draw(st.sampled_from((None, None, None, -1, 3)))
    version = draw(st.sampled_from((2, 2, 2, 1)))
    frames = []
    for number in range(entry_id, entry_id + count):
        stored = entry(ledger_id, number, payload, lac)
        frame = bytearray(encode_add_head(key, len(stored), flags) + stored)
        frame[4] = version
        frames.append(bytes(frame))
    return b"".join(frames)


@st.composite
def reads(draw: st.DrawFn) -> bytes:
    ledger_id, first = draw(LEDGERS), draw(st.integers(-1, 15))
    count = draw(st.sampled_from((1, 1, 4)))
    flags = draw(st.sampled_from((0, 0, 0, Flag.HIGH_PRIORITY)))
    return b"".join(encode_read(ledger_id, first + one, flags=flags) for one in range(count))


OTHERS = st.one_of(
    st.builds(lambda ledger: encode_read(ledger, -1, fence_key=KEY), LEDGERS),
    st.builds(lambda ledger: encode_tell_lac(ledger, 5, KEY), LEDGERS),
    st.builds(
        lambda ledger, first: encode_batch_read(
            ledger, first, request_id=first, count_max=5, size_bytes_max=1_000
        ),
        LEDGERS,
        IDS,
    ),
    st.builds(
        lambda ledger, first: add_run_frame(ledger, range(first, first + 3), b"r", request_id=1),
        LEDGERS,
        IDS,
    ),
    # A negative id, and an operation that does not exist.
    st.just(bytes.fromhex("00000014 02020000 0000000000000007 fffffffffffffff0".replace(" ", ""))),
    st.just(bytes.fromhex("00000014 02630000 0000000000000007 0000000000000001".replace(" ", ""))),
)
STREAMS = st.lists(st.lists(st.one_of(adds(), adds(), reads(), OTHERS), max_size=12), max_size=3)


def frames_of(data: bytes) -> list[bytes]:
    frames, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        frames.append(data[at:end])
        at = end
    return frames


def outcome(parts: Sequence[Sequence[bytes]]) -> tuple[Any, ...]:
    """Receive each part, and finish it before the next. Return the answers and the stored state."""
    bookie = V2Machine()
    answers: list[list[str]] = []
    for receptions in parts:
        bookie.wire.writes.clear()
        for reception in receptions:
            bookie.receive(reception)
        answers.append(sorted(map(plain, bookie.finish())))
    bookie.check_memory()
    machine = bookie.machine
    before = state_of(bookie)
    machine.lose_power()
    machine.start()
    return answers, before, state_of(bookie), bookie.counters.answers


def plain(answer: Any) -> str:
    entries = getattr(answer, "entries", None)
    return repr(answer if entries is None else (answer[:4], [bytes(one) for one in entries]))


def state_of(bookie: V2Machine) -> list[Any]:
    machine = bookie.machine
    storage = machine.serving
    return [
        (
            machine.held(ledger_id),
            [machine.read(ledger_id, entry_id) for entry_id in range(-1, 21)],
            machine.ask(partial(storage.read_lac, ledger_id)),
            storage.is_fenced(ledger_id),
        )
        for ledger_id in (7, 8, 9)
    ]


@given(STREAMS, st.data())
@settings(max_examples=150, deadline=None)
def test_any_receptions_are_like_one_frame_at_a_time(
    stream: list[list[bytes]], data: st.DataObject
) -> None:
    alone, cut = [], []
    for part in stream:
        frames = frames_of(b"".join(part))[:FRAMES_MAX]
        alone.append(frames)
        joined = b"".join(frames)
        ends = data.draw(st.lists(st.integers(0, len(joined)), max_size=4).map(sorted))
        cut.append([joined[i:j] for i, j in zip([0, *ends], [*ends, len(joined)], strict=True)])
    note(f"receptions of {[list(map(len, part)) for part in cut]} bytes")
    assert outcome(cut) == outcome(alone)
