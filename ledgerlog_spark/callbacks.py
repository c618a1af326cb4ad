"""Calls a function of a user or of another component, such as a user's `on_change`.

An exception in such a function must not stop the caller, and must not be lost. Therefore it is
reported to the event loop's exception handler, like an exception in a callback of asyncio. The
default handler logs the exception.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def notify(callback: Callable[..., object], *arguments: Any) -> None:
    """Call `callback`. If it raises an exception, report the exception to the event loop.

    The exception does not reach the caller. Call this function only on the event loop's thread.
    """
    try:
        callback(*arguments)
    except Exception as error:  # noqa: BLE001 - a callback may raise any exception
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the callback {callback!r} failed", "exception": error}
        )
