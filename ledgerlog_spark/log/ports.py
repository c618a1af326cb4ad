"""The parts of a ledger client that `log/` needs; `LedgerClient` and its handles have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

    from ledgerlog_spark.client.append_queue import AppendListener, Waiter
    from ledgerlog_spark.client.handles.creation import CreateRecord, LedgerSpec
    from ledgerlog_spark.client.users import EndsFirst
    from ledgerlog_spark.errors import LedgerLogError
    from ledgerlog_spark.model import Code, LedgerMetadata
    from ledgerlog_spark.protocol.ledger.read_room import ReadPlace


class Appends(Protocol):
    """Queue of a leader's entries before they are sent; implemented by `AppendQueue`."""

    def add(self, payload: bytes | bytearray | memoryview, waiter: Waiter, /) -> None:
        """Append one payload; the waiter, or the listener, receives the result."""

    def send_now(self) -> None:
        """Send added payloads, as far as window and linger allow."""


class LedgerWriterHandle(Protocol):
    """A ledger that this process writes."""

    @property
    def queue(self) -> Appends:
        """The appends that are not acknowledged."""

    @property
    def id(self) -> int:
        """The ledger."""

    @property
    def is_writable(self) -> bool:
        """No failure so far, and no close."""

    def append_async(self, payload: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """A future of the entry's id, in order."""

    async def close(self) -> LedgerMetadata:
        """Close the ledger after the last append; may be retried after a retriable error."""

    def abandon(self) -> None:
        """Stop without closing."""


class Follower(Protocol):
    """Keeps a reader handle up to date."""

    @property
    def error(self) -> LedgerLogError | None:
        """The error that ended it, None at a ledger's end and before."""

    def cancel(self) -> None:
        """Stop following."""


class LedgerReaderHandle(Protocol):
    """A ledger that is read."""

    @property
    def id(self) -> int:
        """The ledger."""

    @property
    def last_add_confirmed(self) -> int:
        """Last entry known to be acknowledged, NO_ENTRY if none; the last entry if closed."""

    @property
    def is_closed(self) -> bool:
        """Whether its end is final."""

    def follow(self, on_change: Callable[[], None], *, entries_size_bytes_max: int = 0) -> Follower:
        """Keep both up to date, calling back after each change, until cancelled."""

    def watched_entries(self, first_entry_id: int, last_entry_id: int) -> Sequence[Any]:
        """Entries of the range from the follower's last update, without gaps; may be none."""

    async def refresh(self) -> int:
        """Update both once."""

    def read_batches(
        self,
        first_entry_id: int = 0,
        last_entry_id: int | None = None,
        *,
        is_listed: bool = False,
        place: ReadPlace | None = None,
    ) -> AsyncGenerator[Sequence[Any], None]:
        """Entries in order, in batches; with `is_listed` whatever the last add confirmed is.

        With `place`, the limit of its room for all its readers applies.
        """

    async def aclose(self) -> None:
        """End the reads."""


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
        """A new ledger, its record made by `create`; `ledger_id` from `new_ledger_ids`, once.

        `on_failed` gets the reason when the handle accepts no more appends without being closed,
        with or without pending appends.
        """

    async def new_ledger_ids(self, count: int) -> Sequence[int]:
        """Rising ids that are never used twice."""

    async def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        is_listed: bool = False,
        may_be_outdated: bool = False,
    ) -> LedgerReaderHandle:
        """A handle for reading; with `is_listed` no bookie is queried for the last add confirmed.

        With `may_be_outdated`, its metadata may have been read some time ago.
        """

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """The present metadata."""

    async def seal(
        self, ledger_id: int, *, password: bytes = b"", floor_entry_id: int = -1
    ) -> LedgerMetadata:
        """Fence, recover and close."""

    async def delete_ledger(self, ledger_id: int) -> None:
        """Delete the record."""

    def when_closed(self, on_closed: Callable[[], None]) -> Callable[[], None]:
        """Call `on_closed` when the client is closed, until the callable returned is called."""

    def ends_first(self, user: EndsFirst) -> None:
        """Close `user` before the client is closed, unless nothing else refers to it then."""

    def check_open(self) -> None:
        """Raise `LocalProtocolError` if the client was closed."""

    def list_ledgers(self) -> AsyncIterator[int]:
        """All ledger ids, rising."""

    async def entry_copies(
        self, ledger_id: int, metadata: LedgerMetadata, entry_id: int
    ) -> Mapping[str, Code]:
        """The answer of each bookie of the entry's write set about the entry."""
