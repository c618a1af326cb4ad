"""Damages each byte of the cookie file, and checks the cookie as a start does."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bookie_server.core.manifest_codec import NAME, Manifest
from bookie_server.errors import CookieMismatchError
from bookie_server.service.membership.cookie_check import COOKIE_FILE, check_cookies
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.wire.cookie import Cookie
from tests.corruption.damage import Case, cases_of, damaged
from tests.corruption.judge import Verdict
from tests.corruption.scenarios import Scenario, Stored, Truth

BOOKIE_ID = "bookie-7"
COOKIES = "cookie"
"""The role of the file, and the name of its scenario."""


def judge_cookies() -> list[tuple[Case, Verdict, str]]:
    """All cases of the cookie file, with their verdicts and reasons."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_judged(Path(folder)))


async def _judged(directory: Path) -> list[tuple[Case, Verdict, str]]:
    stores = memory_metadata(MemoryNodes())
    await stores.initialize()

    async def initialize(_first: Manifest | None) -> None:
        (directory / NAME).touch()

    registration = stores.registration
    await check_cookies(registration, BOOKIE_ID, [directory], initialize, stores.known_bookies)
    path = directory / COOKIE_FILE
    sound = Stored(path.read_bytes())
    verdicts = []
    for case in _cases(sound):
        path.write_bytes(damaged(sound, case).data)
        verdicts.append((case, *await _judge(stores, directory)))
    await stores.close()
    return verdicts


def _cases(sound: Stored) -> Iterator[Case]:
    files, roles = {COOKIE_FILE: sound}, {COOKIE_FILE: COOKIES}
    scenario = Scenario(COOKIES, files, {}, roles, Truth())
    return cases_of(scenario, frozenset(files))


async def _judge(stores: MetadataStores, directory: Path) -> tuple[Verdict, str]:
    async def never(_first: Manifest | None) -> None:
        raise AssertionError("a directory with a damaged cookie was initialized")

    try:
        checked = await check_cookies(
            stores.registration, BOOKIE_ID, [directory], never, stores.known_bookies
        )
    except CookieMismatchError as error:
        return Verdict.DETECTED, type(error).__name__
    except Exception as error:  # noqa: BLE001 - whatever a start raises is judged here
        return Verdict.WRONG, f"{type(error).__name__}: {error}"
    data = (directory / COOKIE_FILE).read_bytes()
    try:
        found = Cookie.decode(data)
    except WireFormatError:
        return Verdict.WRONG, f"an unreadable cookie was accepted: {data!r}"
    names = ("bookie_id", "ledger_directories", "instance_id")
    if any(getattr(found, name) != getattr(checked.cookie, name) for name in names):
        return Verdict.WRONG, f"the cookie of another bookie was accepted: {data!r}"
    return Verdict.HARMLESS, ""
