"""The common interface of all stores of metadata, on any tree of nodes.

All methods of stores are coroutines on the client's event loop. Reads may be stale until `sync`. A
write raises `MetadataVersionError` (definite) after a conflict, `MetadataUnavailableError`
(definite) when nothing was sent, and `MetadataUnknownError` (not definite) when the connection was
lost after sending: the caller determines the outcome and never guesses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

OnChange = Callable[[], None]
"""Called on the event loop after a watched node changed; read it to see the change."""

CancelWatch = Callable[[], None]


class Session(Protocol):
    """The session with the metadata store that the stores of one client share."""

    @property
    def is_connected(self) -> bool:
        """Whether requests are sent immediately; any thread may call it."""

    async def is_orphaned(self) -> bool:
        """Whether another store answers at this address than the one of this session."""
        ...
