"""The blocking client, for programs without an event loop and for Spark's workers.

Every call runs on the loop thread, of which each process has only one. After a fork, the client
reconnects in the child process. Only the parent process can continue to write the ledgers that it
created.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from ledgerlog_spark.client.arguments import check_callback
from ledgerlog_spark.client.blocking.derived import (
    Blocking,
    Closing,
    derived,
    derived_as,
    documented_by,
)
from ledgerlog_spark.client.blocking.loop_thread import LoopThread, loop_thread
from ledgerlog_spark.client.blocking.reader import BlockingReadHandle
from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.reader import ReadHandle
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.errors import LocalProtocolError

T = TypeVar("T")
Connect = Callable[[], Coroutine[Any, Any, LedgerClient]]
BATCH_OF_IDS = 1_000


class BlockingClient(Blocking[LedgerClient], Closing):
    """The ledgers of one cluster. Several threads may use this client, even after a fork.

    Every call waits until its work is done. A `with` statement closes the client at its end.
    """

    def __init__(self, connect: Connect) -> None:
        """Create and connect a client.

        Each process that uses the client object calls `connect` once.
        """
        self._connect = connect
        self._lock = threading.Lock()
        self._pid = 0
        self._thread: LoopThread | None = None
        self._client: LedgerClient | None = None
        self._is_closed = False
        self._connected()

    def _written(self, handle: WriteHandle) -> BlockingWriteHandle:
        thread, client = self._connected()
        return BlockingWriteHandle(handle, thread, client.services.settings)

    def _read(self, handle: ReadHandle) -> BlockingReadHandle:
        return BlockingReadHandle(handle, self._connected()[0])

    create_ledger = derived_as(LedgerClient.create_ledger, _written)
    open_ledger = derived_as(LedgerClient.open_ledger, _read)
    seal = derived(LedgerClient.seal)
    delete_ledger = derived(LedgerClient.delete_ledger)
    ledger_metadata = derived(LedgerClient.ledger_metadata)

    @documented_by(LedgerClient.list_ledgers)
    def list_ledgers(self) -> Iterator[int]:
        """Yield the ledger ids. Each call on the event loop reads up to `BATCH_OF_IDS` ids."""
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

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def is_orphaned(self) -> bool:
        """Whether another cluster answers at the address of this client's cluster.

        This client never reconnects to another cluster, because its ledgers do not exist there. If
        the client is connected, this call sends no request.

        Raises:
            MetadataUnavailableError: No metadata store answered.
        """
        thread, client = self._connected()
        session = client.services.session
        if session is None or session.is_connected:
            return False
        return thread.call(session.is_orphaned())

    def run(self, work: Callable[[LedgerClient], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine `work(client)` on the client's event loop, and return its result.

        Raises:
            LocalProtocolError: The client is closed, or the caller is on the event loop's thread.
            Exception: The coroutine raised this error.
        """
        check_callback(work, "work")
        thread, client = self._connected()
        return thread.call(work(client))

    _run = run

    @documented_by(LedgerClient.aclose)
    def close(self) -> None:
        """Close the client on the event loop of the calling process."""
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
            if client is not None and self._thread is not None and self._pid == os.getpid():
                self._thread.closers.discard(client.aclose)
                self._thread.call(client.aclose())

    def _connected(self) -> tuple[LoopThread, LedgerClient]:
        if self._pid != os.getpid():
            # Another thread may have held the old lock during the fork.
            self._lock = threading.Lock()
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
