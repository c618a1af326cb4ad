"""Watches that stay until they are cancelled.

A watch of ZooKeeper itself fires only once, and is lost when the connection is lost.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType

from ledgerlog_spark.metadata.tree import CancelWatch, OnChange


@dataclass(slots=True)
class _Watched:
    """One watched path and its callbacks."""

    path: str
    is_of_children: bool
    callbacks: dict[int, OnChange] = field(default_factory=dict)


class ZookeeperWatches:
    """All watches of one session.

    A watch that fired is set again *before* its callbacks run. Therefore, if a node changes after a
    callback has read the node, the callback is called again. After each reconnection, all watches
    are set and all callbacks are called, because the session may have missed changes.
    """

    def __init__(
        self,
        client: KazooClient,
        loop: asyncio.AbstractEventLoop,
        on_loop: Callable[..., None],
    ) -> None:
        self._client = client
        self._loop = loop
        self._on_loop = on_loop
        self.requests_sent = 0
        self._is_connected = False
        self._keys = itertools.count()
        self._watched: dict[tuple[str, bool], _Watched] = {}

    def add(self, path: str, on_change: OnChange, *, is_of_children: bool) -> CancelWatch:
        """Watch a node or its children. Return a function that ends the watch."""
        place = path, is_of_children
        watched = self._watched.get(place)
        key = next(self._keys)
        if watched is None:
            watched = self._watched[place] = _Watched(path, is_of_children)
            self._arm(watched, announce=False)
        watched.callbacks[key] = on_change

        def cancel() -> None:
            watched.callbacks.pop(key, None)
            if not watched.callbacks and self._watched.get(place) is watched:
                del self._watched[place]

        return cancel

    def connected(self) -> None:
        """Set all watches and call all callbacks. Called after the connection is established."""
        self._is_connected = True
        for watched in list(self._watched.values()):
            self._arm(watched, announce=True)

    def disconnected(self) -> None:
        """Stop setting watches until `connected` is called."""
        self._is_connected = False

    def clear(self) -> None:
        """Drop all watches."""
        for watched in self._watched.values():
            watched.callbacks.clear()
        self._watched.clear()

    def _arm(self, watched: _Watched, *, announce: bool, by_existence: bool = False) -> None:
        if not self._is_connected:
            return

        def fired(event: Any) -> None:  # runs on a thread of kazoo
            if event.type != EventType.NONE:
                self._on_loop(self._fired, watched)

        self.requests_sent += 1
        if watched.is_of_children and not by_existence:
            result = self._client.get_children_async(watched.path, watch=fired)
        else:
            result = self._client.exists_async(watched.path, watch=fired)
        result.rawlink(lambda r: self._on_loop(self._armed, watched, r, announce, by_existence))

    def _armed(self, watched: _Watched, result: Any, announce: bool, by_existence: bool) -> None:
        failure = result.exception
        if isinstance(failure, kazoo_errors.NoNodeError):
            # The children of a node that does not exist cannot be watched, so watch the node
            # itself.
            self._arm(watched, announce=True, by_existence=True)
        elif by_existence and failure is None and result.value is not None:
            # The node was created between the two requests, so its children can be watched now.
            self._arm(watched, announce=True)
        elif failure is None and announce:
            for key in list(watched.callbacks):
                self._loop.call_soon(_call, watched, key)
        # Any other failure is a lost connection. After the reconnection, `connected` sets the
        # watch.

    def _fired(self, watched: _Watched) -> None:
        if watched.callbacks:
            self._arm(watched, announce=True)


def _call(watched: _Watched, key: int) -> None:
    on_change = watched.callbacks.get(key)
    if on_change is not None:
        on_change()
