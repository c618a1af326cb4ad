"""The answer to one request, which kazoo's connection thread passes to the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class RequestResult:
    """Used instead of kazoo's result object of a request.

    Only the first call of a method has an effect. kazoo's own result calls its callbacks on another
    thread, so each answer would wake two threads.
    """

    __slots__ = ("_future", "_on_loop")

    def __init__(self, on_loop: Callable[..., None], future: asyncio.Future[Any]) -> None:
        """Create the object.

        `on_loop` calls a function with its arguments on the loop of the future.
        """
        self._on_loop = on_loop
        self._future = future

    def set(self, value: Any) -> None:
        """Set the value of the answer as the result of the future."""
        self._on_loop(_settle, self._future, value)

    def set_exception(self, failure: BaseException) -> None:
        """Set the failure of the request as the error of the future."""
        self._on_loop(_fail, self._future, failure)


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], failure: BaseException) -> None:
    if not future.done():
        future.set_exception(failure)
