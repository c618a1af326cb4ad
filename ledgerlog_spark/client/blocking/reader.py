"""The blocking form of a read handle. It switches threads for each batch, not for each entry."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ledgerlog_spark.client.blocking.derived import (
    BlockingHandle,
    Closing,
    Shown,
    derived,
    documented_by,
)
from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.client.handles.reader import Entry, ReadHandle
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import LedgerMetadata


class BlockingReadHandle(BlockingHandle[ReadHandle], Closing):
    """Reads a ledger in any state, and has no effect on its writer.

    Any thread of the process that opened the handle may use it. A `with` statement closes the
    handle at its end.

    Attributes:
        id: The id of the ledger.
    """

    def __init__(self, handle: ReadHandle, thread: LoopThread) -> None:
        super().__init__(handle, thread)
        self.id = handle.id

    last_add_confirmed = Shown(ReadHandle.last_add_confirmed)
    is_closed = Shown(ReadHandle.is_closed)
    length = Shown(ReadHandle.length)

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata that was read last. If it is outdated, a read of entries updates it."""
        return self._twin.metadata

    refresh = derived(ReadHandle.refresh)
    read_entry = derived(ReadHandle.read_entry)

    @documented_by(ReadHandle.read)
    def read(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> Iterator[Entry]:
        """Yield the entries one by one."""
        for batch in self.read_batches(first_entry_id, last_entry_id):
            yield from batch

    @documented_by(ReadHandle.read_batches)
    def read_batches(
        self,
        first_entry_id: int = 0,
        last_entry_id: int | None = None,
        *,
        is_listed: bool = False,
    ) -> Iterator[Sequence[Entry]]:
        """Yield the entries in batches, with one thread switch for each batch."""
        batches = self._twin.read_batches(first_entry_id, last_entry_id, is_listed=is_listed)

        async def following(_: ReadHandle) -> Sequence[Entry]:
            async for batch in batches:
                return batch
            return ()

        try:
            while batch := self._run(following):
                yield batch
        finally:
            # This clean-up must not wait, because it runs on the loop's thread if that thread
            # collects the generator.
            loop = self._thread.loop
            if self._thread.pid == os.getpid() and not loop.is_closed():
                loop.call_soon_threadsafe(lambda: loop.create_task(batches.aclose()))

    @documented_by(ReadHandle.aclose)
    def close(self) -> None:
        """Close the handle in this process."""
        self._run(ReadHandle.aclose)

    def _forked(self) -> LocalProtocolError:
        return LocalProtocolError(
            f"the handle of ledger {self.id} belongs to the process that opened it: open the "
            "ledger again in this process",
            ledger_id=self.id,
        )

    def __repr__(self) -> str:
        return f"BlockingReadHandle(id={self.id}, last_add_confirmed={self.last_add_confirmed})"
