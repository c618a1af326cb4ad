"""Waking up coroutines that wait for something to have happened, and calling back."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from bookie_server.ports import Future, Tasks

P = ParamSpec("P")
T = TypeVar("T")


def resolve(future: Future[T], value: T) -> None:
    """Hand a value to whoever waits, unless that one was cancelled."""
    if not future.done():
        future.set_result(value)


def settle(futures: list[Future[None]]) -> None:
    """Wake up whoever waits for any of them, cancelled ones passed over; empties the list."""
    while futures:
        resolve(futures.pop(), None)


def report(tasks: Tasks, error: Exception) -> None:
    """Raise what a callback raised in a turn of its own, where the host reports it.

    It is its owner's mistake: whoever called back has others to call, and records to write.
    """

    def fail() -> None:
        raise error

    tasks.call_soon(fail)


def guarded(tasks: Tasks, callback: Callable[P, None]) -> Callable[P, None]:
    """The callback for use in a task of ours: what it raises is reported, and does not end it."""

    def call(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            callback(*arguments, **options)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is its owner's
            report(tasks, error)

    return call
