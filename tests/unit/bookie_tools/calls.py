"""Calls of the tools for a directory, as functions that return at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from bookie_server.tools.check import Report, check
from bookie_server.tools.directory import RestingDirectory, opened
from bookie_server.tools.entries import DumpResult, LedgerEntries
from bookie_server.tools.rebuild import Rebuild, rebuild_indexes

T = TypeVar("T")
LIMIT = 100


def with_directory(path: Path, work: Callable[[RestingDirectory], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        async with opened(path) as directory:
            return await work(directory)

    return asyncio.run(run())


def checked(path: Path, limit: int = LIMIT) -> Report:
    return with_directory(path, lambda directory: check(directory, limit))


def dumped(
    path: Path, ledger_id: int, first: int = 0, last: int | None = None
) -> tuple[dict[int, bytes], DumpResult]:
    async def work(directory: RestingDirectory) -> tuple[dict[int, bytes], DumpResult]:
        entries = LedgerEntries(directory, ledger_id)
        found = [each async for each in entries.read(first, last)]
        assert [entry_id for entry_id, _ in found] == sorted({each for each, _ in found})
        return dict(found), entries.outcome

    return with_directory(path, work)


def rebuilt(path: Path) -> list[Rebuild]:
    return with_directory(path, lambda directory: rebuild_indexes(directory, None))


def content_of(path: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of the last change of each file except LOCK."""
    return {
        each.name: (each.read_bytes(), each.stat().st_mtime_ns)
        for each in path.iterdir()
        if each.name != "LOCK"
    }
