"""Limits the calls of the control service, before the handler of a call runs.

Each call needs one of a limited number of places, which connections share fairly. A call that may
still receive a request also needs a place of a second kind, because the library may hold one
request in memory for each of these calls. A call with a single request must receive the request
within REQUEST_SECONDS_MAX, so that an unfinished request does not hold memory for long. A streaming
call has other limits (`service/grpc/stream.py`).

A call keeps its place until its replies are sent. If a client does not take a reply, the library
keeps the reply. To end such a call, its connection must be closed
(`service/grpc/stuck_calls.py`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, Final, Self

import grpc

from bookie_server.service.grpc.stuck_calls import Stuck

REQUEST_SECONDS_MAX: Final = 10.0


class FairSlots:
    """A limited number of places that peers (connections) share fairly.

    The places limit the calls of the control service, or the watches of ledgers. A peer can keep
    its calls and watches open for any time. So if all places are taken, a new call can take a place
    from the peer with the most places. The newest call of that peer is then ended.
    """

    __slots__ = ("_by_peer", "count", "count_max", "ended", "refused")

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.count = 0
        self.refused = 0  # total number of refused calls
        self.ended = 0  # total number of calls ended to give their place to another peer
        self._by_peer: dict[str, dict[object, Callable[[], object]]] = {}

    def enter(self, peer: str, end: Callable[[], object]) -> object | None:
        """Take a place for a call, and return the place, or None if the call is refused.

        If all places are taken, the call is refused unless another peer has at least two places
        more than this peer. `end` is called at most once, when the place is given to another peer.
        """
        mine = len(self._by_peer.get(peer, ()))
        if self.count >= self.count_max:
            greediest = max(self._by_peer, key=lambda name: len(self._by_peer[name]))
            if len(self._by_peer[greediest]) <= mine + 1:
                self.refused += 1
                return None
            newest = next(reversed(self._by_peer[greediest]))
            end_newest = self._by_peer[greediest][newest]
            self.leave(greediest, newest)
            self.ended += 1
            end_newest()
        place = object()
        self._by_peer.setdefault(peer, {})[place] = end
        self.count += 1
        return place

    def leave(self, peer: str, place: object) -> None:
        """Free a place, unless it was given to another peer."""
        places = self._by_peer.get(peer)
        if places is not None and places.pop(place, None) is not None:
            self.count -= 1
            if not places:
                del self._by_peer[peer]


class CallBounds(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Gives each call a place in `slots`.

    A call that may receive a request also has a place in `receiving`.
    """

    def __init__(
        self,
        slots: FairSlots,
        receiving: FairSlots,
        end_stuck: Callable[[Collection[Stuck]], object],
    ) -> None:
        self._slots = slots
        self._receiving = receiving
        self._end_stuck = end_stuck

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of a call in a wrapper that takes a place for each call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        coders = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary is not None:

            async def answer(requests: AsyncIterator[Any], context: Any) -> Any:
                call = _Call(context, self._end_stuck)
                async with call.place(self._slots, is_kept=True):
                    request = await self._request(requests, call)
                    reply = await handler.unary_unary(request, context)
                    call.is_sending = True
                    return reply

            return grpc.stream_unary_rpc_method_handler(answer, *coders)
        if handler.unary_stream is not None:

            async def answers(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
                call = _Call(context, self._end_stuck)
                async with call.place(self._slots):
                    request = await self._request(requests, call)
                    async for reply in call.replies(handler.unary_stream(request, context)):
                        yield reply

            return grpc.stream_stream_rpc_method_handler(answers, *coders)

        async def stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            call = _Call(context, self._end_stuck)
            async with call.place(self._slots), call.place(self._receiving):
                async for reply in call.replies(handler.stream_stream(requests, context)):
                    yield reply

        return grpc.stream_stream_rpc_method_handler(stream, *coders)

    async def _request(self, requests: AsyncIterator[Any], call: _Call) -> Any:
        async with call.place(self._receiving) as place:
            return await place.request(requests)


class _Call:
    """One call, whose handler runs in the current task."""

    def __init__(self, context: Any, end_stuck: Callable[[Collection[Stuck]], object]) -> None:
        task = asyncio.current_task()
        assert task is not None, "calls are handled by tasks"
        self.context = context
        self.peer: str = context.peer()
        self.is_sending = False  # whether the library may hold a reply of the call
        self._task = task
        self._end_stuck = end_stuck

    def place(self, slots: FairSlots, *, is_kept: bool = False) -> _Place:
        """Return a place for `async with`. If `is_kept`, it is freed after the reply is sent."""
        return _Place(slots, self, is_kept=is_kept)

    def end(self) -> None:
        """End the call. If the library may hold a reply of the call, also end the connection."""
        if self.is_sending:
            self._end_stuck([Stuck(self.peer, self._task.cancel)])
        else:
            self._task.cancel()

    async def replies(self, outcome: AsyncIterator[Any] | Awaitable[None]) -> AsyncIterator[Any]:
        """Yield the replies of a handler, except replies that the handler writes to its context."""
        if inspect.isawaitable(outcome):
            self.is_sending = True  # stays True: the library reports no end of a reply
            await outcome
            return
        async for reply in outcome:
            self.is_sending = True
            yield reply
            self.is_sending = False


class _Place:
    """The place of one call.

    The place is freed when the handler ends. If `is_kept` is true, the place is freed after the
    reply is sent.
    """

    def __init__(self, slots: FairSlots, call: _Call, *, is_kept: bool) -> None:
        self._slots = slots
        self._call = call
        self._is_kept = is_kept
        self._place: object | None = None

    def _leave(self) -> None:
        self._slots.leave(self._call.peer, self._place)

    async def __aenter__(self) -> Self:
        self._place = self._slots.enter(self._call.peer, self._call.end)
        if self._place is None:
            await self._call.context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"all {self._slots.count_max} places for calls are taken, and this connection has "
                "its share of these places: end calls that are not needed, and retry",
            )
        if self._is_kept:
            self._call.context.add_done_callback(lambda _: self._leave())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or not self._is_kept:
            self._leave()
        if kind is asyncio.CancelledError and not self._call.context.done():
            # The client did not cancel the call. Abort it, because the library would otherwise
            # still receive a request of the call.
            await self._call.context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "this bookie ended the call to make room for other clients: retry",
            )

    async def request(self, requests: AsyncIterator[Any]) -> Any:
        """Return the call's only request."""
        request = None
        limit = asyncio.timeout(REQUEST_SECONDS_MAX)
        try:
            async with limit:
                request = await anext(aiter(requests), None)
        except TimeoutError:
            if not limit.expired():  # the connection has timed out
                raise
            await self._call.context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"the request was not complete within {REQUEST_SECONDS_MAX:.0f} s",
            )
        if request is None:
            await self._call.context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a request"
            )
        return request
