"""Blocking calls, derived from the coroutines of the same name.

A blocking object has an asyncio object, its *twin*. The blocking object has the same methods as its
twin, and runs each call on the event loop with the twin. Any thread except the event loop's thread
may call these methods. For example, `commit = derived(Log.commit)` in the body of a blocking class
creates such a method. For this method, mypy and `help()` show the parameters, the result and the
docstring of the coroutine.
"""

from __future__ import annotations

import functools
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.errors import LocalProtocolError

P = ParamSpec("P")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
R = TypeVar("R")
W = TypeVar("W")
B = TypeVar("B", bound="Blocking[Any]")
F = TypeVar("F", bound=Callable[..., Any])


class Blocking(ABC, Generic[A_co]):
    """Base class of an object with blocking calls. Its twin has the type `A`.

    The event loop's thread must not use these calls.
    """

    @abstractmethod
    def _run(self, work: Callable[[A_co], Coroutine[Any, Any, R]]) -> R:
        """Run `work` on the event loop with the twin of this object, and return the result."""


class BlockingHandle(Blocking[A_co]):
    """The blocking form of one asyncio object.

    Only the process that created this object can use it.
    """

    def __init__(self, twin: A_co, thread: LoopThread) -> None:
        self._twin = twin
        self._thread = thread

    def _run(self, work: Callable[[A_co], Coroutine[Any, Any, R]]) -> R:
        self._check_process()
        return self._thread.call(work(self._twin))

    def _check_process(self) -> None:
        if self._thread.pid != os.getpid():
            raise self._forked()

    @abstractmethod
    def _forked(self) -> LocalProtocolError:
        """Return the error for a call in a process that did not create the object."""


class Closing(ABC):
    """An object that a `with` statement closes at its end, even after an error."""

    @abstractmethod
    def close(self) -> Any:
        """Close the object. Each class describes the errors of its `close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def derived(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Blocking[A], P], R]:
    """Return the blocking method that runs a coroutine method of the twin."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(lambda twin: method(twin, *args, **kwargs))

    return call


def derived_as(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]], convert: Callable[[B, R], W]
) -> Callable[Concatenate[B, P], W]:
    """Return a method as `derived` does, whose result `convert` turns into a blocking object."""

    @functools.wraps(method)
    def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> W:
        return convert(self, self._run(lambda twin: method(twin, *args, **kwargs)))

    given = inspect.signature(convert).return_annotation
    vars(call)["__signature__"] = inspect.signature(method).replace(return_annotation=given)
    return call


def as_coroutine(
    method: Callable[Concatenate[A, P], R],
) -> Callable[Concatenate[A, P], Coroutine[Any, Any, R]]:
    """Return a coroutine method for a method that does not wait, but must run on the event loop."""

    @functools.wraps(method)
    async def ran(twin: A, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(twin, *args, **kwargs)

    return ran


def on_loop(
    method: Callable[Concatenate[A, P], R],
) -> Callable[Concatenate[Blocking[A], P], R]:
    """Return the blocking form of a method that does not wait, but must run on the event loop."""
    return derived(as_coroutine(method))


class Shown(property, Generic[R]):
    """A property of the twin that any thread may read."""

    def __init__(self, of: Callable[[Any], R]) -> None:
        """Create the property. `of` is the property object from the class of the twin."""
        found: Any = of  # mypy treats a property that is read from its class as a function
        super().__init__(lambda handle: found.fget(handle._twin))  # noqa: SLF001
        self.__doc__ = found.__doc__

    def __get__(self, handle: Any, kind: type | None = None) -> R:  # type: ignore[override]
        shown: R = super().__get__(handle, kind)
        return shown


def documented_by(method: Any) -> Callable[[F], F]:
    """Return a decorator that gives a function the docstring of `method`."""

    def documented(call: F) -> F:
        call.__doc__ = method.__doc__
        return call

    return documented
