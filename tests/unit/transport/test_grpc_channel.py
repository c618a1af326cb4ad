from __future__ import annotations

import os

import pytest

from ledgerlog_spark.errors import BookieUnavailableError
from ledgerlog_spark.model import BookieInfo
from ledgerlog_spark.transport import grpc_channel


async def here(bookie_id: str) -> BookieInfo:
    return BookieInfo(bookie_id, "127.0.0.1", 3181, 4181)


async def test_process_forked_from_one_that_used_grpc_fails_at_once_instead_of_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = await grpc_channel.connect("bookie-0", here)
    await channel.close()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(BookieUnavailableError, match="spawn"):
        await grpc_channel.connect("bookie-0", here)
