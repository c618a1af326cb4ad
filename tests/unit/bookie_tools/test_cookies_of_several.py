"""The commands for cookies, for a bookie with two directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bookie_server.core.directory_identity import identity_of, known_bookie
from bookie_server.core.manifest_codec import decode_manifest
from bookie_server.errors import CookieMismatchError, SwappedDirectoryError
from bookie_server.tools.cookies import create, delete, differences, fix, held_in, stored_about
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.wire.cookie import Cookie
from tests.crash.machine import SMALL, Machine
from tests.fixtures.resting import written

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ledgerlog_spark.metadata.stores import MetadataStores

BOOKIE_ID = "b7"


@pytest.fixture
async def stores() -> AsyncIterator[MetadataStores]:
    opened = memory_metadata(MemoryNodes())
    await opened.initialize()
    yield opened
    await opened.close()


@pytest.fixture
async def paths(stores: MetadataStores, tmp_path: Path) -> list[Path]:
    """The directories of a bookie that has stopped, with its cookies and its record."""
    paths = [tmp_path / "first", tmp_path / "second"]
    names = tuple(map(str, paths))
    cookie = Cookie(BOOKIE_ID, names[0], names, await stores.registration.instance_id())
    identities = []
    for number, path in enumerate(paths):
        machine = Machine(number, settings=SMALL)
        machine.path = str(path)
        machine.start()
        machine.stop()
        written(machine, path)
        (path / "VERSION").write_bytes(cookie.encode())
        identities.append(identity_of(decode_manifest((path / "MANIFEST").read_bytes())))
    await stores.registration.write_cookie(BOOKIE_ID, cookie.encode(), None)
    await stores.known_bookies.write(BOOKIE_ID, known_bookie(identities), None)
    return paths


async def test_each_directory_fits_its_bookie(stores: MetadataStores, paths: list[Path]) -> None:
    stored = await stored_about(stores, BOOKIE_ID)
    for path in paths:
        assert differences(stored, held_in(path)) == []


async def test_cookies_with_other_directories_are_a_difference(
    stores: MetadataStores, paths: list[Path]
) -> None:
    path = str(paths[0])
    alone = Cookie(BOOKIE_ID, path, (path,), await stores.registration.instance_id())
    (paths[0] / "VERSION").write_bytes(alone.encode())
    found = differences(await stored_about(stores, BOOKIE_ID), held_in(paths[0]))
    assert found == [f"the cookie in {path} lists other directories than the metadata store"]


async def test_a_deleted_bookie_comes_back_with_all_its_directories(
    stores: MetadataStores, paths: list[Path]
) -> None:
    before = await stored_about(stores, BOOKIE_ID)
    await delete(stores, before)
    stored = await create(stores, paths[1])
    assert (stored.cookie, stored.known) == (before.cookie, before.known)


async def test_a_bookie_does_not_come_back_without_all_its_directories(
    stores: MetadataStores, paths: list[Path]
) -> None:
    await delete(stores, await stored_about(stores, BOOKIE_ID))
    cookie = Cookie.decode((paths[0] / "VERSION").read_bytes())
    other = Cookie(BOOKIE_ID, "/j", (str(paths[1]),), cookie.instance_id)
    (paths[1] / "VERSION").write_bytes(other.encode())
    with pytest.raises(CookieMismatchError, match="has another cookie than the directory"):
        await create(stores, paths[0])
    (paths[1] / "VERSION").write_bytes(cookie.encode())
    machine = Machine(9, settings=SMALL)
    machine.path = str(paths[1])
    machine.start()
    machine.stop()
    for name in ("MANIFEST", machine.manifest().state_file):
        content = machine.disk.seen_names[name].seen
        (paths[1] / name).write_bytes(bytes(content))
    with pytest.raises(SwappedDirectoryError):
        await create(stores, paths[0])
    assert (await stored_about(stores, BOOKIE_ID)).cookie is None


async def test_no_directory_of_several_is_moved(stores: MetadataStores, paths: list[Path]) -> None:
    moved = paths[1].rename(paths[1].with_name("moved"))
    with pytest.raises(ConfigurationError, match="has several directories"):
        await fix(stores, moved, None)
