"""Calls the control services of running bookies. Commands use these calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ledgerlog_spark.cli.options import registration
from ledgerlog_spark.errors import BookieUnavailableError, ConfigurationError, LedgerLogError
from ledgerlog_spark.metadata.registration import Registration

if TYPE_CHECKING:
    from ledgerlog_spark.transport import control_pb2 as pb

CALL_SECONDS = 30.0
CALLS_AT_ONCE = 16


@asynccontextmanager
async def control_stub(uri: str, bookie_id: str | None, address: str | None) -> AsyncIterator[Any]:
    """Yield the stub of the control service of a running bookie."""
    import grpc

    from ledgerlog_spark.transport import control_pb2_grpc

    if address is None:
        address = await _address_of(uri, bookie_id)
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield control_pb2_grpc.BookieStub(channel)
    except grpc.aio.AioRpcError as error:
        why = (
            "it runs an older release"
            if error.code() is grpc.StatusCode.UNIMPLEMENTED
            else f"{error.code().name.lower()}: {error.details()}"
        )
        raise BookieUnavailableError(
            f"the bookie at {address} did not answer ({why}); `ledgerlog bookies list` shows the "
            "bookies that run",
            bookie_id=bookie_id or address,
            address=address,
        ) from None


async def _address_of(uri: str, bookie_id: str | None) -> str:
    if bookie_id is None:
        raise ConfigurationError("pass --bookie-id, or the address of the bookie with --grpc")
    async with registration(uri) as store:
        return await _control_address(store, bookie_id)


async def _control_address(store: Registration, bookie_id: str) -> str:
    info = await store.info(bookie_id)
    if info.grpc_port is None:
        raise BookieUnavailableError(f"bookie {bookie_id} has no gRPC port", bookie_id=bookie_id)
    host = f"[{info.host}]" if ":" in info.host else info.host
    return f"{host}:{info.grpc_port}"


class ControlServices:
    """The control services of the bookies of a cluster.

    Use this object in an `async with` statement.
    """

    def __init__(self, store: Registration) -> None:
        """Create an object that has no connections yet.

        `store` has the addresses of the bookies.
        """
        self._store = store
        self._stubs: dict[str, Any] = {}
        self._channels = AsyncExitStack()
        self._places = asyncio.Semaphore(CALLS_AT_ONCE)

    async def info(self, bookie_id: str) -> pb.GetInfoReply | None:
        """Return the state and the figures of a bookie.

        The result is None if the bookie does not answer, or if it is a bookie of Apache BookKeeper,
        which has no control service.
        """
        import grpc

        from ledgerlog_spark.transport import control_pb2 as messages

        async with self._places:
            try:
                stub = await self._stub(bookie_id)
                reply: pb.GetInfoReply = await stub.GetInfo(
                    messages.GetInfoRequest(), timeout=CALL_SECONDS
                )
            except (LedgerLogError, grpc.aio.AioRpcError):
                return None
        return reply

    async def _stub(self, bookie_id: str) -> Any:
        import grpc

        from ledgerlog_spark.transport import control_pb2_grpc
        from ledgerlog_spark.transport.grpc.channel import MESSAGE_SIZE_BYTES_MAX

        if bookie_id not in self._stubs:
            address = await _control_address(self._store, bookie_id)
            size = ("grpc.max_receive_message_length", MESSAGE_SIZE_BYTES_MAX)
            channel = grpc.aio.insecure_channel(address, options=(size,))
            await self._channels.enter_async_context(channel)
            self._stubs[bookie_id] = control_pb2_grpc.BookieStub(channel)
        return self._stubs[bookie_id]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._channels.aclose()
