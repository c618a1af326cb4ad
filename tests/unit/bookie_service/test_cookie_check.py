"""The owner of the data: each possible contradiction between cookies and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bookie_server.core.directory_identity import DirectoryFinding, compare, identity_of
from bookie_server.core.doubt import Doubt
from bookie_server.core.manifest_codec import Manifest, decode_manifest
from bookie_server.errors import CookieMismatchError
from bookie_server.service.membership.cookie_check import COOKIE_FILE, WantedChange, check_cookies
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.files.manifest import ManifestStore, initialize_directory
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.wire.cookie import Cookie
from ledgerlog_spark.wire.known_bookie import KnownBookie, KnownDirectory
from tests.fixtures.metadata_worlds import delete_cookie

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BOOKIE_ID = "127.0.0.1:3181"


@pytest.fixture
async def stores() -> AsyncIterator[MetadataStores]:
    opened = memory_metadata(MemoryNodes())
    await opened.initialize()
    yield opened
    await opened.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "b1"
    path.mkdir()
    return path


async def check(
    stores: MetadataStores, bookie_id: str, directory: Path, *, allow_lost_directory: bool = False
) -> Cookie:
    """Check the cookies as a start does, with the first MANIFEST in a real directory."""

    async def initialize(first: Manifest | None) -> None:
        if first is None:
            assert await stores.registration.read_cookie(bookie_id) is None, "the node comes last"
        files = OsFileSystem(directory)
        try:
            await files.lock()
            await initialize_directory(files, first)
        finally:
            await files.unlock()

    checked = await check_cookies(
        stores.registration,
        bookie_id,
        [directory],
        initialize,
        stores.known_bookies,
        WantedChange(may_be_lost=allow_lost_directory),
    )
    return checked.cookie


def _wipe(directory: Path) -> None:
    for path in list(directory.iterdir()):
        path.unlink()


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.name != COOKIE_FILE:
            path.unlink()


def _moved(directory: Path, name: str) -> Path:
    return directory.rename(directory.with_name(name))


async def _refusal(stores: MetadataStores, directory: Path, bookie_id: str = BOOKIE_ID) -> str:
    before = _contents(directory)
    with pytest.raises(CookieMismatchError) as refused:
        await check(stores, bookie_id, directory)
    assert _contents(directory) == before
    return str(refused.value)


async def test_first_start_writes_the_same_cookie_to_directory_and_store(
    stores: MetadataStores, directory: Path
) -> None:
    cookie = await check(stores, BOOKIE_ID, directory)
    stored = await stores.registration.read_cookie(BOOKIE_ID)
    assert stored is not None
    assert Cookie.decode(stored.value) == cookie
    assert Cookie.decode((directory / COOKIE_FILE).read_bytes()) == cookie
    assert cookie.instance_id == await stores.registration.instance_id()


async def test_second_start_finds_its_own_data(stores: MetadataStores, directory: Path) -> None:
    first = await check(stores, BOOKIE_ID, directory)
    (directory / "MANIFEST").write_bytes(b"data")
    assert await check(stores, BOOKIE_ID, directory) == first


async def test_start_that_was_cut_off_before_the_node_goes_on(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, BOOKIE_ID, directory)
    await delete_cookie(stores, BOOKIE_ID)
    await check(stores, BOOKIE_ID, directory)
    assert await stores.registration.read_cookie(BOOKIE_ID) is not None


async def test_directory_of_another_bookie_is_refused_with_its_path(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, "127.0.0.1:9999", directory)
    message = await _refusal(stores, directory)
    assert "belongs to another bookie" in message
    assert str(directory / COOKIE_FILE) in message
    assert "127.0.0.1:9999" in message


async def test_directory_of_another_cluster_is_refused(
    stores: MetadataStores, directory: Path
) -> None:
    other = memory_metadata(MemoryNodes())
    await other.initialize()
    await check(other, BOOKIE_ID, directory)
    await other.close()
    assert "belongs to another cluster" in await _refusal(stores, directory)


async def test_emptied_directory_of_a_known_bookie_is_refused(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, BOOKIE_ID, directory)
    (directory / COOKIE_FILE).unlink()
    message = await _refusal(stores, directory)
    assert "data is missing" in message
    assert str(directory / COOKIE_FILE) in message


async def test_directory_emptied_but_for_its_cookie_is_refused(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, BOOKIE_ID, directory)
    _empty(directory)
    message = await _refusal(stores, directory)
    assert str(directory / "MANIFEST") in message
    assert "data is missing" in message
    assert "allow_lost_directory=true" in message


async def test_first_start_cut_off_before_its_manifest_goes_on(
    stores: MetadataStores, directory: Path
) -> None:
    async def power_fails(_first: Manifest | None) -> None:
        raise ConnectionError("cut off")

    with pytest.raises(ConnectionError):
        await check_cookies(
            stores.registration, BOOKIE_ID, [directory], power_fails, stores.known_bookies
        )
    assert await stores.registration.read_cookie(BOOKIE_ID) is None
    await check(stores, BOOKIE_ID, directory)
    assert (directory / "MANIFEST").exists()


async def test_directory_that_a_start_used_is_no_first_start(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, BOOKIE_ID, directory)
    files = OsFileSystem(directory)
    await files.lock()
    store = ManifestStore(files)
    states = await store.load(await files.names())
    await store.commit(lambda: store.current, states)
    await files.unlock()
    await delete_cookie(stores, BOOKIE_ID)
    assert "metadata store has no cookie" in await _refusal(stores, directory)


async def test_directory_that_moved_is_refused_naming_both_places(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, BOOKIE_ID, directory)
    moved = _moved(directory, "b2")
    message = await _refusal(stores, moved)
    assert str(directory) in message
    assert str(moved) in message


async def test_data_without_a_cookie_is_refused(stores: MetadataStores, directory: Path) -> None:
    (directory / "slot-0001").write_bytes(b"somebody's entries")
    assert "no VERSION" in await _refusal(stores, directory)


async def test_data_of_a_bookie_that_the_cluster_forgot_is_refused(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, BOOKIE_ID, directory)
    (directory / "MANIFEST").write_bytes(b"data")
    await delete_cookie(stores, BOOKIE_ID)
    assert "metadata store has no cookie" in await _refusal(stores, directory)


async def test_an_empty_directory_of_a_bookie_with_a_record_is_refused(
    stores: MetadataStores, directory: Path
) -> None:
    await stores.known_bookies.write(BOOKIE_ID, KnownBookie((), is_retired=True), None)
    assert "was in the cluster before" in await _refusal(stores, directory)
    assert _contents(directory) == {}


@pytest.mark.parametrize("data", [b"", b"4\nhost\n", b"\xff\xfe", b"5\nbookieHost: 7\n"])
async def test_cookie_file_that_cannot_be_read_is_refused_with_its_path(
    stores: MetadataStores, directory: Path, data: bytes
) -> None:
    (directory / COOKIE_FILE).write_bytes(data)
    message = await _refusal(stores, directory)
    assert str(directory / COOKIE_FILE) in message


async def test_cookie_in_the_store_of_other_data_is_refused(
    stores: MetadataStores, directory: Path
) -> None:
    forged = Cookie(BOOKIE_ID, str(directory), (str(directory),), "another-instance")
    await stores.registration.write_cookie(BOOKIE_ID, forged.encode(), None)
    assert "cookies/127.0.0.1:3181 in the metadata store" in await _refusal(stores, directory)


async def test_an_empty_directory_of_a_known_bookie_starts_in_doubt_only_on_request(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, BOOKIE_ID, directory)
    known = KnownBookie((KnownDirectory("ab" * 8, starts=3, changes=9, doubt_epoch=2),))
    await stores.known_bookies.write(BOOKIE_ID, known, None)
    _wipe(directory)
    with pytest.raises(CookieMismatchError, match="allow_lost_directory"):
        await check(stores, BOOKIE_ID, directory)
    await check(stores, BOOKIE_ID, directory, allow_lost_directory=True)
    manifest = decode_manifest((directory / "MANIFEST").read_bytes())
    assert manifest.doubt == Doubt(epoch=3)
    assert (manifest.previous_id, manifest.starts, manifest.changes) == ("ab" * 8, 3, 10)
    assert compare(identity_of(manifest), known) is DirectoryFinding.OWN
    await check(stores, BOOKIE_ID, directory)  # later starts need no setting


async def test_a_crash_leaves_no_empty_directory_that_counts_as_whole(
    stores: MetadataStores, directory: Path
) -> None:
    """The MANIFEST in doubt comes before the cookie of the directory."""
    await check(stores, BOOKIE_ID, directory)
    _wipe(directory)

    async def power_fails(first: Manifest | None) -> None:
        assert first is not None
        assert first.doubt.epoch == 1
        assert not (directory / COOKIE_FILE).exists()
        raise ConnectionError("cut off")

    with pytest.raises(ConnectionError):
        await check_cookies(
            stores.registration,
            BOOKIE_ID,
            [directory],
            power_fails,
            stores.known_bookies,
            WantedChange(may_be_lost=True),
        )
    with pytest.raises(CookieMismatchError):
        await check(stores, BOOKIE_ID, directory)
    await check(stores, BOOKIE_ID, directory, allow_lost_directory=True)
    (directory / COOKIE_FILE).unlink()  # as after a crash before it was written
    first = (directory / "MANIFEST").read_bytes()
    await check(stores, BOOKIE_ID, directory, allow_lost_directory=True)
    assert (directory / COOKIE_FILE).exists()
    assert (directory / "MANIFEST").read_bytes() == first


async def test_a_directory_with_data_is_never_taken_for_a_lost_one(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, BOOKIE_ID, directory)
    before = _contents(directory)
    await check(stores, BOOKIE_ID, directory, allow_lost_directory=True)
    assert _contents(directory) == before, "an interrupted first start has no doubt"
    (directory / "MANIFEST").unlink()
    (directory / "slot-00000001").touch()
    with pytest.raises(CookieMismatchError, match="MANIFEST"):
        await check(stores, BOOKIE_ID, directory, allow_lost_directory=True)


async def test_a_retired_bookie_does_not_start_with_an_empty_directory(
    stores: MetadataStores, directory: Path
) -> None:
    await check(stores, BOOKIE_ID, directory)
    known = KnownBookie((KnownDirectory("ab" * 8, 3, 9),), is_retired=True)
    await stores.known_bookies.write(BOOKIE_ID, known, None)
    _wipe(directory)
    with pytest.raises(CookieMismatchError, match="taken out of service"):
        await check(stores, BOOKIE_ID, directory, allow_lost_directory=True)
