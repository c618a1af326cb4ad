"""Opens and closes channels to the control service of bookies, and interprets failures of calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from ledgerlog_spark.errors import BookieUnavailableError, LedgerLogError
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, BookieInfo, Code
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.transport.port import ResolveBookie
from ledgerlog_spark.waits import forever, within

MESSAGE_SIZE_BYTES_MAX: Final = FRAME_SIZE_BYTES_MAX + 65_536
KEEPALIVE_MS: Final = 10_000
"""Time between pings in milliseconds. A watch gets no messages while the LAC does not change, so
only pings detect that a host has disappeared."""

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_SIZE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_SIZE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_pings_without_data", 0),
)
_CODES: Final = {
    grpc.StatusCode.DEADLINE_EXCEEDED: Code.TIMEOUT,
    grpc.StatusCode.UNIMPLEMENTED: Code.BAD_REQUEST,
    grpc.StatusCode.INVALID_ARGUMENT: Code.BAD_REQUEST,
}

_ANSWERED: Final = frozenset((*_CODES, grpc.StatusCode.RESOURCE_EXHAUSTED))
"""Codes with which a working bookie may answer a call. A call that ends with another code closes
the channel."""

RESOLVE_SECONDS_MAX: Final = 15.0
"""Time limit for the look-up of a bookie in the metadata store."""

ChannelTask = asyncio.Task[grpc.aio.Channel]
UNREACHABLE: Final = (LedgerLogError, grpc.aio.UsageError, ValueError, TimeoutError)


async def outcome_of(
    channel: ChannelTask,
    retire: Callable[[ChannelTask], None],
    use: Callable[[Any], Awaitable[Code]],
) -> Code:
    """Call `use` with the stub of a channel; return its code, or the code of its failure.

    If the channel is broken, call `retire` with the channel.
    """
    try:
        return await use(await _stub_of(channel))
    except grpc.aio.AioRpcError as error:
        if error.code() not in _ANSWERED:
            retire(channel)
        return _CODES.get(error.code(), Code.UNAVAILABLE)
    except UNREACHABLE:
        retire(channel)
    except asyncio.CancelledError:
        # If another call fails, `retire` closes the channel. This cancels the call, but not the
        # task that waits for the call. In that case, the CancelledError must not end the task.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
    return Code.UNAVAILABLE


_using_process: list[int] = []
"""The id of the process that first opened a channel, as a list with at most one element.

gRPC's threads do not survive a fork. If a process has used gRPC, calls in its forked child would
never end. So `connect` fails immediately in such a child."""


async def connect(bookie_id: str, resolve: ResolveBookie) -> grpc.aio.Channel:
    """Look up the current address of a bookie, and return a channel to this address."""
    if not _using_process:
        _using_process.append(os.getpid())
    if _using_process[0] != os.getpid():
        raise BookieUnavailableError(
            f"bookie {bookie_id} cannot be reached over gRPC, because this process was forked from "
            "a process that has used gRPC: start processes with the spawn method",
            bookie_id=bookie_id,
        )
    info: BookieInfo = await within(_resolved(bookie_id, resolve), RESOLVE_SECONDS_MAX)
    if info.grpc_port is None:
        raise BookieUnavailableError(f"bookie {bookie_id} has no gRPC port", bookie_id=bookie_id)
    host = f"[{info.host}]" if ":" in info.host else info.host
    return grpc.aio.insecure_channel(f"{host}:{info.grpc_port}", options=_CHANNEL_OPTIONS)


async def _resolved(bookie_id: str, resolve: ResolveBookie) -> BookieInfo:
    return await resolve(bookie_id)


async def _stub_of(channel: ChannelTask) -> Any:
    return control_pb2_grpc.BookieStub(
        await forever(asyncio.shield(channel), "`connect` has a deadline")
    )


async def close(channel: ChannelTask) -> None:
    """Close a channel. If the channel could not be opened, do nothing."""
    with contextlib.suppress(*UNREACHABLE):
        await (await forever(channel, "`connect` has a deadline")).close(None)
