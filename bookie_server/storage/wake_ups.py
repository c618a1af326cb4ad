"""Wakes waiting coroutines, and calls callbacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from bookie_server.ports import Future, Tasks

P = ParamSpec("P")
T = TypeVar("T")


def resolve(future: Future[T], value: T) -> None:
    """Set the value of a future, unless it already has a result or its waiter was cancelled."""
    if not future.done():
        future.set_result(value)


def settle(futures: list[Future[None]]) -> None:
    """Empty the list `futures`, and wake the coroutines that still wait for its futures."""
    while futures:
        resolve(futures.pop(), None)


def call_back(
    tasks: Tasks, callback: Callable[P, None], *arguments: P.args, **options: P.kwargs
) -> None:
    """Call `callback`. An exception of `callback` is raised later, from the event loop.

    The event loop reports the exception, and the caller can continue with other callbacks.
    """
    try:
        callback(*arguments, **options)
    except Exception as raised:  # noqa: BLE001 -- any exception belongs to the callback's owner
        error = raised

        def fail() -> None:
            raise error

        tasks.call_soon(fail)


def guarded(tasks: Tasks, callback: Callable[P, None]) -> Callable[P, None]:
    """Return a function that calls `callback` through `call_back`."""
    return partial(call_back, tasks, callback)
