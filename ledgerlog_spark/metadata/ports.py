"""The common interface of all stores of metadata, on any tree of nodes.

All methods of stores are coroutines on the client's event loop. Reads may be stale until `sync`. A
write raises `MetadataVersionError` (definite) after a conflict, and `MetadataUnavailableError`
(definite) if nothing was sent. It raises `MetadataUnknownError` (not definite) if the connection
was lost after the request was sent. Then the caller reads the store to find the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

OnChange = Callable[[], None]
"""Called on the event loop after a watched node changed, without the change."""

CancelWatch = Callable[[], None]


class Session(Protocol):
    """The session with the metadata store. All stores of one client share this session."""

    @property
    def is_connected(self) -> bool:
        """Whether requests are sent immediately. Any thread may call this."""

    async def is_orphaned(self) -> bool:
        """Whether the address of this session's store now belongs to another store."""
        ...
