"""The blocking API of a client, for programs without an event loop and for Spark's workers.

Every call runs on the process's one loop thread. After a fork the client connects anew in the
child; ledgers that the parent was writing stay the parent's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from ledgerlog_spark.client.blocking.closing import Closing
from ledgerlog_spark.client.blocking.loop_thread import LoopThread, loop_thread
from ledgerlog_spark.client.blocking.reader import BlockingReadHandle
from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle, Inbox
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import NO_ENTRY, DigestType, LedgerMetadata

T = TypeVar("T")
Connect = Callable[[], Coroutine[Any, Any, LedgerClient]]
BATCH_OF_IDS = 1_000


class BlockingClient(Closing):
    """Ledgers of one cluster; safe to use from several threads, and after a fork.

    Same calls and same errors as `LedgerClient`, without `await`.
    """

    def __init__(self, connect: Connect) -> None:
        """A connected client.

        Args:
            connect: Makes the asyncio client; called once for each process that uses this one.

        Raises:
            MetadataUnavailableError: The metadata store cannot be reached in time.
        """
        self._connect = connect
        self._lock = threading.Lock()
        self._pid = 0
        self._thread: LoopThread | None = None
        self._client: LedgerClient | None = None
        self._is_closed = False
        self._connected()

    def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        digest_type: str | DigestType = "CRC32C",
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        explicit_lac: bool = False,
    ) -> BlockingWriteHandle:
        """The handle of a new ledger; see `LedgerClient.create_ledger`."""
        thread, client = self._connected()
        inbox = Inbox(client.services.settings, thread)
        handle = thread.call(
            client.create_ledger(
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest_type=digest_type,
                password=password,
                custom_metadata=custom_metadata,
                explicit_lac=explicit_lac,
                listener=inbox,
            )
        )
        return BlockingWriteHandle(handle, thread, inbox)

    def open_ledger(self, ledger_id: int, *, password: bytes = b"") -> BlockingReadHandle:
        """A handle for reading, which never fences; see `LedgerClient.open_ledger`."""
        thread, client = self._connected()
        handle = thread.call(client.open_ledger(ledger_id, password=password))
        return BlockingReadHandle(handle, thread)

    def seal(
        self, ledger_id: int, *, password: bytes = b"", floor_entry_id: int = NO_ENTRY
    ) -> LedgerMetadata:
        """The closed record; see `LedgerClient.seal`."""
        thread, client = self._connected()
        return thread.call(client.seal(ledger_id, password=password, floor_entry_id=floor_entry_id))

    def delete_ledger(self, ledger_id: int) -> None:
        """Delete the record; see `LedgerClient.delete_ledger`."""
        thread, client = self._connected()
        thread.call(client.delete_ledger(ledger_id))

    def list_ledgers(self) -> Iterator[int]:
        """All ledger ids, rising; see `LedgerClient.list_ledgers`."""
        thread, client = self._connected()
        ids = client.list_ledgers()

        async def some() -> list[int]:
            found: list[int] = []
            async for ledger_id in ids:
                found.append(ledger_id)
                if len(found) >= BATCH_OF_IDS:
                    break
            return found

        while batch := thread.call(some()):
            yield from batch

    def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """The record as it is now; see `LedgerClient.ledger_metadata`."""
        thread, client = self._connected()
        return thread.call(client.ledger_metadata(ledger_id))

    def is_orphaned(self) -> bool:
        """Whether another cluster answers at the address of this client's.

        Such a client never connects again: what it knows is of ledgers that are gone. Asked of a
        connected client this costs nothing; else see `Session.is_orphaned`.
        """
        thread, client = self._connected()
        session = client.services.session
        if session is None or session.is_connected:
            return False
        return thread.call(session.is_orphaned())

    def run(self, work: Callable[[LedgerClient], Coroutine[Any, Any, T]]) -> T:
        """What `work(client)` returns, run on the client's loop: for layers built on it."""
        thread, client = self._connected()
        return thread.call(work(client))

    def close(self) -> None:
        """End all connections. Ledgers that are still written stay open: seal them later."""
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
            if client is not None and self._thread is not None and self._pid == os.getpid():
                self._thread.closers.discard(client.aclose)
                self._thread.call(client.aclose())

    def _connected(self) -> tuple[LoopThread, LedgerClient]:
        if self._pid != os.getpid():
            self._lock = threading.Lock()  # another thread of the parent may have held the old one
            self._client = None
        with self._lock:
            if self._is_closed:
                raise LocalProtocolError("the client is closed: connect again")
            if self._client is None or self._thread is None:
                self._thread = loop_thread()
                self._client = self._thread.call(self._connect())
                self._thread.closers.add(self._client.aclose)
                self._pid = os.getpid()
            return self._thread, self._client
