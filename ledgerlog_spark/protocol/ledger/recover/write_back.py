"""Writes recovered entries back to an ack quorum.

Entries keep id, payload and cumulative length. The header's LAC is the one that fencing found, for
all of them (PROTOCOL.md#C10). Entries that are found together are sent together, in runs.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ledgerlog_spark.model import RUN_ENTRIES_MAX, RUN_SIZE_BYTES_MAX
from ledgerlog_spark.protocol.ledger.write.add_pipeline import AddPipeline, Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledgerlog_spark.model import Quorum
    from ledgerlog_spark.protocol.ledger.messages import Payload, SendAdd, StoredEntry
    from ledgerlog_spark.protocol.request_numbers import RequestNumbers

LINGER_ENTRIES = 64
LINGER_SIZE_BYTES = 256 << 10


class WriteBack:
    """Recovered entries, buffered, then sent as runs with the RECOVERY flag."""

    def __init__(
        self,
        *,
        ledger_id: int,
        quorum: Quorum,
        ensemble: tuple[str, ...],
        last_add_confirmed: int,  # found by fencing; the first entry follows it
        numbers: RequestNumbers,
        window: Window,
        buffered_size_bytes_max: int,
    ) -> None:
        # None until the first entry: only its header has the length before it
        self.pipeline: AddPipeline | None = None
        self._ledger_id = ledger_id
        self._quorum = quorum
        self._ensemble = ensemble
        self._found = last_add_confirmed
        self._numbers = numbers
        self._window = window
        self._buffered_size_bytes_max = buffered_size_bytes_max
        self._buffered: deque[StoredEntry] = deque()
        self._buffered_size_bytes = 0
        self._measured_length: int | None = None

    @property
    def last_add_confirmed(self) -> int:
        """Last entry on an ack quorum; at first the LAC that fencing found."""
        return self._found if self.pipeline is None else self.pipeline.last_add_confirmed

    @property
    def entries_confirmed(self) -> int:
        """Number of entries written back."""
        return self.last_add_confirmed - self._found

    @property
    def length(self) -> int | None:
        """Payload bytes of the ledger up to `last_add_confirmed`, if known."""
        return self._measured_length if self.pipeline is None else self.pipeline.length

    @property
    def is_finished(self) -> bool:
        """Whether all entries so far are on an ack quorum."""
        idle = self.pipeline is None or self.pipeline.first_unconfirmed_entry_id is None
        return idle and not self._buffered

    @property
    def has_room(self) -> bool:
        """Whether reading further ahead keeps memory bounded."""
        return self._buffered_size_bytes < self._buffered_size_bytes_max

    def set_length(self, length: int) -> None:
        """Set the length from another entry's header; only before the first entry."""
        assert self.pipeline is None
        self._measured_length = length

    def take(self, entries: Iterable[StoredEntry]) -> None:
        """Buffer the next entries, which have no gaps."""
        for entry in entries:
            if self.pipeline is None:
                self.pipeline = self._begin(entry)
            self._buffered.append(entry)
            self._buffered_size_bytes += len(entry.payload)

    def flush(self, *, is_end: bool) -> list[SendAdd]:
        """Send the buffered entries in runs; small runs wait while others are pending."""
        effects: list[SendAdd] = []
        pipeline = self.pipeline
        while self._buffered and pipeline is not None and pipeline.can_add:
            is_small = (
                len(self._buffered) < LINGER_ENTRIES
                and self._buffered_size_bytes < LINGER_SIZE_BYTES
            )
            if is_small and not is_end and pipeline.first_unconfirmed_entry_id is not None:
                break
            effects += pipeline.add(self._next_run())
        return effects

    def _begin(self, first: StoredEntry) -> AddPipeline:
        return AddPipeline(
            ledger_id=self._ledger_id,
            quorum=self._quorum,
            ensemble=self._ensemble,
            numbers=self._numbers,
            last_add_confirmed=first.entry_id - 1,
            length=first.length - len(first.payload),
            window=self._window,
            is_recovery=True,
        )

    def _next_run(self) -> list[Payload]:
        payloads: list[Payload] = []
        size_bytes = 0
        while self._buffered and len(payloads) < RUN_ENTRIES_MAX:
            payload = self._buffered[0].payload
            if payloads and size_bytes + len(payload) > RUN_SIZE_BYTES_MAX:
                break
            self._buffered.popleft()
            size_bytes += len(payload)
            payloads.append(payload)
        self._buffered_size_bytes -= size_bytes
        return payloads
