"""Calls of functions that belong to a user or another part, such as a user's `on_change`.

An exception of such a function is a mistake of its owner. It must neither stop the caller nor be
lost: it is reported to the event loop's exception handler, as for asyncio's own callbacks. The
    default handler logs it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def notify(callback: Callable[..., object], *arguments: Any) -> None:
    """Call back on the event loop's thread; an exception is reported, and nothing is raised."""
    try:
        callback(*arguments)
    except Exception as error:  # noqa: BLE001 - a callback may raise anything; its owner has to handle it
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the callback {callback!r} failed", "exception": error}
        )
