"""The interfaces that `log/` uses. `LedgerClient` and its handles implement them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

from ledgerlog_spark.client.append_queue import AppendListener, Waiter
from ledgerlog_spark.client.handles.creation import CreateRecord, LedgerSpec
from ledgerlog_spark.client.users import EndsFirst
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import Code, LedgerMetadata
from ledgerlog_spark.protocol.ledger.read_room import ReadPlace
from ledgerlog_spark.protocol.ledger.slices import SliceSource


class Appends(Protocol):
    """The queue of a leader's unsent entries. `AppendQueue` implements this interface."""

    def add(self, payload: bytes | bytearray | memoryview, waiter: Waiter, /) -> None:
        """Append one payload.

        `waiter` receives the result. If the queue has a listener, the listener receives the result
        instead.
        """

    def send_now(self) -> None:
        """Send the added payloads, as far as the window and the linger allow."""


class LedgerWriterHandle(Protocol):
    """Writes one ledger."""

    @property
    def queue(self) -> Appends:
        """The appends that are not acknowledged."""

    @property
    def id(self) -> int:
        """The id of the ledger."""

    @property
    def is_writable(self) -> bool:
        """Whether the handle accepts appends. It does if it has neither failed nor been closed."""

    def append_async(self, payload: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """Append one payload, and return a future of the entry's id.

        Futures complete in the order of the calls.
        """

    async def close(self) -> LedgerMetadata:
        """Close the ledger after the last append.

        After a retriable error, the caller may close it again.
        """

    def abandon(self) -> None:
        """Stop writing without closing the ledger."""


class Follower(Protocol):
    """Keeps the known end of a ledger in a read handle up to date."""

    @property
    def error(self) -> LedgerLogError | None:
        """The error that ended the follower; None while it runs and after the ledger is closed."""


class LedgerReaderHandle(Protocol):
    """Reads one ledger."""

    @property
    def id(self) -> int:
        """The id of the ledger."""

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is known to be acknowledged; NO_ENTRY if there is none.

        If the ledger is closed, the value is its last entry.
        """

    @property
    def is_closed(self) -> bool:
        """Whether the ledger is closed, so that its end is final."""

    def follow(self, on_change: Callable[[], None], *, entries_size_bytes_max: int = 0) -> Follower:
        """Update `last_add_confirmed` and `is_closed`, and call `on_change` after each change."""

    def watched_entries(self, first_entry_id: int, last_entry_id: int) -> Sequence[Any]:
        """Return the first entries of this range that the follower's last update contained.

        The result has no gaps, and may be empty.
        """

    def read_batches(
        self,
        first_entry_id: int = 0,
        last_entry_id: int | None = None,
        *,
        is_listed: bool = False,
        place: ReadPlace | None = None,
        slices: SliceSource | None = None,
    ) -> AsyncGenerator[Sequence[Any], None]:
        """Yield entries in order, in batches.

        If `is_listed` is true, the range may end after the last add confirmed. If `place` is given,
        all readers of its room share one limit of memory. If `slices` is given, a payload may
        contain only the requested parts.
        """

    async def aclose(self) -> None:
        """End all reads and followers of this handle."""


class Ledgers(Protocol):
    """The ledgers of a cluster."""

    async def create_registered_ledger(
        self,
        create: CreateRecord,
        spec: LedgerSpec,
        *,
        ledger_id: int | None = None,
        listener: AppendListener | None = None,
        on_failed: Callable[[LedgerLogError], object] | None = None,
    ) -> LedgerWriterHandle:
        """Create a ledger. `create` stores its metadata.

        `ledger_id` is an unused id that `new_ledger_ids` returned. When the handle fails,
        `on_failed` gets the error, even if no append is pending.
        """

    async def new_ledger_ids(self, count: int) -> Sequence[int]:
        """Return new ledger ids in ascending order. No other call returns these ids."""

    async def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        is_listed: bool = False,
        may_be_outdated: bool = False,
    ) -> LedgerReaderHandle:
        """Return a handle to read a ledger.

        If `is_listed` is true, the LAC is not read from bookies. If `may_be_outdated` is true, the
        handle may use ledger metadata that was read some time ago.
        """

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Return the present metadata of a ledger."""

    async def seal(
        self, ledger_id: int, *, password: bytes = b"", floor_entry_id: int = -1
    ) -> LedgerMetadata:
        """Fence, recover and close a ledger."""

    async def delete_ledger(self, ledger_id: int) -> None:
        """Delete the metadata of a ledger."""

    def when_closed(self, on_closed: Callable[[], None]) -> Callable[[], None]:
        """Call `on_closed` when the client is closed.

        The returned function unregisters `on_closed`.
        """

    def ends_first(self, user: EndsFirst) -> None:
        """End `user` before the client is closed.

        The client has only a weak reference to `user`.
        """

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if the client was closed."""

    def list_ledgers(self) -> AsyncIterator[int]:
        """Yield all ledger ids in ascending order."""

    async def entry_copies(
        self, ledger_id: int, metadata: LedgerMetadata, entry_id: int
    ) -> Mapping[str, Code]:
        """Return the answer of each bookie of the entry's write set."""
