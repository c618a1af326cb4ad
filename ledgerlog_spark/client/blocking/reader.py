"""The blocking API of a read handle: a thread hop for each batch, none for an entry."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from ledgerlog_spark.client.blocking.closing import Closing
from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.client.handles.reader import Entry, ReadHandle
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import LedgerMetadata

T = TypeVar("T")


class BlockingReadHandle(Closing):
    """`ReadHandle` without `await`.

    Attributes:
        id: The ledger's id.
    """

    def __init__(self, handle: ReadHandle, thread: LoopThread) -> None:
        self.id = handle.id
        self._handle = handle
        self._thread = thread

    @property
    def last_add_confirmed(self) -> int:
        """See `ReadHandle.last_add_confirmed`."""
        return self._handle.last_add_confirmed

    @property
    def is_closed(self) -> bool:
        """Whether the ledger was closed when its record was last loaded."""
        return self._handle.is_closed

    @property
    def length(self) -> int:
        """Payload bytes of the closed ledger, 0 while it is open."""
        return self._handle.length

    @property
    def metadata(self) -> LedgerMetadata:
        """The record as last loaded."""
        return self._handle.metadata

    def refresh(self) -> int:
        """The last add confirmed, asked for again; see `ReadHandle.refresh`."""
        return self._call(self._handle.refresh())

    def read(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> Iterator[Entry]:
        """Entries first to last, both inclusive, in order; see `ReadHandle.read_batches`."""
        for batch in self.read_batches(first_entry_id, last_entry_id):
            yield from batch

    def read_batches(
        self,
        first_entry_id: int = 0,
        last_entry_id: int | None = None,
        *,
        is_listed: bool = False,
    ) -> Iterator[Sequence[Entry]]:
        """Entries in batches as they arrive; see `ReadHandle.read_batches`."""
        batches = self._handle.read_batches(first_entry_id, last_entry_id, is_listed=is_listed)

        async def following() -> Sequence[Entry]:
            async for batch in batches:
                return batch
            return ()

        try:
            while batch := self._call(following()):
                yield batch
        finally:
            # Not waited for: a generator may be collected on any thread, the loop's included.
            loop = self._thread.loop
            if self._thread.pid == os.getpid() and not loop.is_closed():
                loop.call_soon_threadsafe(lambda: loop.create_task(batches.aclose()))

    def read_entry(self, entry_id: int) -> Entry:
        """One entry; see `ReadHandle.read_entry`."""
        return self._call(self._handle.read_entry(entry_id))

    def close(self) -> None:
        """End reads that are under way; local only."""
        self._call(self._handle.aclose())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread.pid != os.getpid():
            work.close()
            raise LocalProtocolError(
                f"the handle of ledger {self.id} belongs to the process that opened it: open the "
                "ledger again in this process",
                ledger_id=self.id,
            )
        return self._thread.call(work)

    def __repr__(self) -> str:
        return f"BlockingReadHandle(id={self.id}, last_add_confirmed={self.last_add_confirmed})"
