"""Wakes waiting coroutines, and calls callbacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from bookie_server.ports import Future, Tasks

P = ParamSpec("P")
T = TypeVar("T")


def resolve(future: Future[T], value: T) -> None:
    """Set the value of a future, unless the coroutine that waits for it was cancelled."""
    if not future.done():
        future.set_result(value)


def settle(futures: list[Future[None]]) -> None:
    """Wake all coroutines that wait for `futures`, and empty the list.

    A cancelled coroutine is skipped.
    """
    while futures:
        resolve(futures.pop(), None)


def call_back(
    tasks: Tasks, callback: Callable[P, None], *arguments: P.args, **options: P.kwargs
) -> None:
    """Call `callback`; an exception of the callback is raised later, from the event loop.

    In this way the exception is reported, and the caller can continue with other callbacks.
    """
    try:
        callback(*arguments, **options)
    except Exception as raised:  # noqa: BLE001 -- any exception belongs to the callback's owner
        error = raised

        def fail() -> None:
            raise error

        tasks.call_soon(fail)


def guarded(tasks: Tasks, callback: Callable[P, None]) -> Callable[P, None]:
    """Return the callback, wrapped in `call_back`."""
    return partial(call_back, tasks, callback)
