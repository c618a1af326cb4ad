"""What all stores of metadata have in common, on any tree of nodes.

All methods of stores are coroutines on the client's event loop. Reads may be stale until `sync`. A
write raises `MetadataVersionError` (definite) when it lost, `MetadataUnavailableError` (definite)
when nothing was sent, and `MetadataUnknownError` (not definite) when the connection went after
sending: the caller settles it, never guesses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

OnChange = Callable[[], None]
"""Called on the event loop after something watched changed; read again to see what."""

CancelWatch = Callable[[], None]


class Session(Protocol):
    """The session with the metadata store that the stores of one client share."""

    @property
    def is_connected(self) -> bool:
        """Whether requests go out at once; may be asked on any thread."""

    async def is_orphaned(self) -> bool:
        """Whether another store answers at this address than the one of this session."""
        ...
