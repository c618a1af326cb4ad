"""Appends waiting to be sent, gathered into runs whose limits are the protocol's.

Pure bookkeeping: which payloads travel together and who waits for which of them. When to send is
the write handle's decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ledgerlog_spark.client.settings import PAYLOAD_SIZE_BYTES_MAX
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError
from ledgerlog_spark.model import RUN_ENTRIES_MAX, RUN_SIZE_BYTES_MAX
from ledgerlog_spark.protocol.ledger.messages import Payload


class Waiter(Protocol):
    """The part of a future that an append completes: asyncio's and concurrent's both have it."""

    def done(self) -> bool:
        """Whether it was completed or cancelled."""

    def set_result(self, result: Any, /) -> None:
        """Complete it."""

    def set_exception(self, exception: Any, /) -> None:
        """Fail it."""


class AppendListener(Protocol):
    """Receives the progress of a write handle, such as its blocking API in another thread."""

    def on_sent(self, entries: int, size_bytes: int) -> None:
        """These numbers of entries and payload bytes have left the queue."""

    def complete(self, results: list[tuple[Any, Any]]) -> None:
        """Give futures their results, in order."""


class Gathered:
    """Payloads of one run, and the appends that end in it.

    Attributes:
        payloads: In the order they were appended.
        waiters: (future, offset of the append's last payload in the run, entries of a batch or 0).
        size_bytes: Of the payloads.
        first_entry_id: Set when the run is sent.
    """

    __slots__ = ("first_entry_id", "payloads", "size_bytes", "waiters")

    def __init__(self) -> None:
        self.payloads: list[Payload] = []
        self.waiters: list[tuple[Waiter, int, int]] = []
        self.size_bytes = 0
        self.first_entry_id = -1

    def results(self) -> list[tuple[Any, Any]]:
        """Each append's future, and its entry id or the range of ids of its batch."""
        first = self.first_entry_id
        return [
            (waiter, range(first + offset - batch + 1, first + offset + 1))
            if batch
            else (waiter, first + offset)
            for waiter, offset, batch in self.waiters
        ]

    def fail(self, error: LedgerLogError) -> None:
        """Fail each append that ends here."""
        for waiter, _, _ in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


Complete = Callable[[list[tuple[Any, Any]]], None]
"""Gives futures their results, in order."""


def complete_each(results: list[tuple[Any, Any]]) -> None:
    """Complete asyncio's futures; cancelled ones are passed over."""
    for waiter, result in results:
        if not waiter.done():
            waiter.set_result(result)


class AppendBatches:
    """Appends in order, cut into runs of so many entries and bytes at most (or one larger entry).

    Attributes:
        entries: Gathered and not yet taken.
        size_bytes: Payload bytes of the same.
    """

    def __init__(
        self, *, entries_max: int = RUN_ENTRIES_MAX, size_bytes_max: int = RUN_SIZE_BYTES_MAX
    ) -> None:
        """Nothing gathered; the limits are those of one run."""
        self.entries = 0
        self.size_bytes = 0
        self._entries_max = entries_max
        self._size_bytes_max = size_bytes_max
        self._full: deque[Gathered] = deque()
        self._filling = Gathered()

    def add(self, payload: Payload, waiter: Waiter) -> None:
        """Gather one append."""
        size = len(payload)
        run = self._filling
        if run.size_bytes + size > self._size_bytes_max and run.payloads:
            run = self._cut()
        run.waiters.append((waiter, len(run.payloads), 0))
        run.payloads.append(payload)
        run.size_bytes += size
        self.entries += 1
        self.size_bytes += size
        if len(run.payloads) >= self._entries_max:
            self._cut()

    def add_batch(self, payloads: Sequence[Payload], waiter: Waiter) -> None:
        """Gather a batch of at least one payload; it may span runs and completes with its last."""
        count = len(payloads)
        size = sum(map(len, payloads))
        run = self._filling
        if run.payloads and not self._fits(run, count, size):
            run = self._cut()
        if self._fits(run, count, size):
            run.payloads.extend(payloads)
            run.size_bytes += size
        else:
            run = self._spread(payloads)
        run.waiters.append((waiter, len(run.payloads) - 1, count))
        self.entries += count
        self.size_bytes += size
        if len(run.payloads) >= self._entries_max:
            self._cut()

    def take_full(self) -> Gathered | None:
        """The oldest run that can take no more, None when there is none."""
        return self._taken(self._full.popleft()) if self._full else None

    def take(self) -> Gathered | None:
        """The oldest run, full or not; None when nothing was gathered."""
        if self._full:
            return self._taken(self._full.popleft())
        if not self._filling.payloads:
            return None
        run, self._filling = self._filling, Gathered()
        return self._taken(run)

    def _taken(self, run: Gathered) -> Gathered:
        self.entries -= len(run.payloads)
        self.size_bytes -= run.size_bytes
        return run

    def _cut(self) -> Gathered:
        self._full.append(self._filling)
        self._filling = Gathered()
        return self._filling

    def _spread(self, payloads: Sequence[Payload]) -> Gathered:
        run = self._filling
        for payload in payloads:
            if run.payloads and not self._fits(run, 1, len(payload)):
                run = self._cut()
            run.payloads.append(payload)
            run.size_bytes += len(payload)
        return run

    def _fits(self, run: Gathered, count: int, size_bytes: int) -> bool:
        return (
            len(run.payloads) + count <= self._entries_max
            and run.size_bytes + size_bytes <= self._size_bytes_max
        )


def checked_payloads(payloads: Iterable[object], *, what: str = "an entry") -> list[Payload]:
    """Payloads whose bytes stay as they are; see `checked_payload`.

    Raises:
        LocalProtocolError: One payload instead of several, or as of `checked_payload`. Nothing was
            appended.
    """
    check_several(payloads, what)
    return [checked_payload(payload, what=what) for payload in payloads]


def check_several(payloads: object, what: str) -> None:
    """Refuse one payload where several are to be given: its bytes would be taken for a list.

    Raises:
        LocalProtocolError: It is one payload. Nothing was appended.
    """
    if isinstance(payloads, bytes | bytearray | memoryview):
        raise LocalProtocolError(
            f"expected a list, got {type(payloads).__name__}, which is {what} by itself: put it "
            "into a list, or use append",
            type=type(payloads).__name__,
        )


def checked_payload(
    payload: object, *, what: str = "an entry", size_bytes_max: int = PAYLOAD_SIZE_BYTES_MAX
) -> Payload:
    """A payload whose bytes stay as they are: `bytes` and read-only views as given, else a copy.

    Args:
        payload: To be appended.
        what: It is to its caller, for messages.
        size_bytes_max: Of the payload.

    Raises:
        LocalProtocolError: Not bytes, or larger than that. Nothing was appended.
    """
    kept: Payload
    if type(payload) is bytes and len(payload) <= size_bytes_max:
        return payload
    if isinstance(payload, memoryview) and payload.readonly and payload.contiguous:
        kept = payload if payload.format == "B" and payload.ndim == 1 else payload.cast("B")
    elif isinstance(payload, bytes | bytearray | memoryview):
        kept = bytes(payload)
    else:
        raise LocalProtocolError(
            f"{what} is bytes, a bytearray or a memoryview, not {type(payload).__name__}: encode "
            "it first",
            type=type(payload).__name__,
        )
    if len(kept) > size_bytes_max:
        raise LocalProtocolError(
            f"{what} holds at most {size_bytes_max} bytes, got {len(kept)}: split it",
            size_bytes=len(kept),
            size_bytes_max=size_bytes_max,
        )
    return kept
