"""Bounds of the calls of the control service, applied before a call's handler sees it.

A call gets one of a bounded number of places, shared fairly among connections, and a place of
another kind for as long as it may bring a request: the library may hold one for each of these. A
call with a single request has to bring it within REQUEST_SECONDS_MAX, so that a request that is
never finished holds memory no longer than that; one that streams has its own bounds
(`grpc_stream.py`).
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final, Self

import grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bookie_server.service.fair_slots import FairSlots

REQUEST_SECONDS_MAX: Final = 10.0


class CallBounds(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Gives calls their places.

    Args:
        slots: For all calls of the server.
        receiving: For those whose requests may still come.
    """

    def __init__(self, slots: FairSlots, receiving: FairSlots) -> None:
        self._slots = slots
        self._receiving = receiving

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The handler of a call, with bounds."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        coders = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary is not None:

            async def answer(requests: AsyncIterator[Any], context: Any) -> Any:
                async with _Place(self._slots, context):
                    request = await self._request(requests, context)
                    return await handler.unary_unary(request, context)

            return grpc.stream_unary_rpc_method_handler(answer, *coders)
        if handler.unary_stream is not None:

            async def answers(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
                async with _Place(self._slots, context):
                    request = await self._request(requests, context)
                    async for reply in _replies(handler.unary_stream(request, context)):
                        yield reply

            return grpc.stream_stream_rpc_method_handler(answers, *coders)

        async def stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            async with _Place(self._slots, context), _Place(self._receiving, context):
                async for reply in _replies(handler.stream_stream(requests, context)):
                    yield reply

        return grpc.stream_stream_rpc_method_handler(stream, *coders)

    async def _request(self, requests: AsyncIterator[Any], context: Any) -> Any:
        async with _Place(self._receiving, context) as place:
            return await place.request(requests)


async def _replies(outcome: AsyncIterator[Any] | Awaitable[None]) -> AsyncIterator[Any]:
    """What a handler yields; nothing where it writes its replies to its context."""
    if inspect.isawaitable(outcome):
        await outcome
        return
    async for reply in outcome:
        yield reply


class _Place:
    """The place of one call, for as long as its handler runs."""

    def __init__(self, slots: FairSlots, context: Any) -> None:
        self._slots = slots
        self._context = context
        self._peer = context.peer()
        self._place: object | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "calls are handled by tasks"
        self._place = self._slots.enter(self._peer, task.cancel)
        if self._place is None:
            await self._context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"this bookie serves {self._slots.count_max} calls at once, and this connection "
                "has its part of them: close calls that are not needed, and retry",
            )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._slots.leave(self._peer, self._place)
        if kind is asyncio.CancelledError and not self._context.done():
            # Not by its client. A call whose handler is cancelled is still open for the library,
            # which goes on to receive a request of it.
            await self._context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "this bookie ended the call to make room for others: retry",
            )

    async def request(self, requests: AsyncIterator[Any]) -> Any:
        """The call's only request."""
        request = None
        limit = asyncio.timeout(REQUEST_SECONDS_MAX)
        try:
            async with limit:
                request = await anext(aiter(requests), None)
        except TimeoutError:
            if not limit.expired():  # of the connection
                raise
            await self._context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"the request was not complete within {REQUEST_SECONDS_MAX:.0f} s",
            )
        if request is None:
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a request")
        return request
