"""The commands for cookies: what they write, in which order, and what they refuse."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.directory_identity import DirectoryIdentity, identity_of
from bookie_server.core.kept_identity import encode_identity
from bookie_server.core.manifest_codec import FORMAT_VERSION_BEFORE, Manifest, decode_manifest
from bookie_server.core.settings import ModeSettings
from bookie_server.errors import (
    CookieMismatchError,
    DirectoryIdentityError,
    MovedDirectoryError,
    OlderCopyError,
    RetiredBookieError,
    SwappedDirectoryError,
    WrongDirectoryError,
)
from bookie_server.service.membership.cookie_check import check_cookies
from bookie_server.service.membership.directory_record import DirectoryRecord
from bookie_server.tools import cookies
from bookie_server.tools.cookies import (
    create,
    delete,
    differences,
    fix,
    held_in,
    stored_about,
)
from bookie_server.tools.directory import opened
from bookie_server.tools.versions import rewrite_manifest
from ledgerlog_spark.errors import BookieUnavailableError, ConfigurationError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.wire.cookie import Cookie
from ledgerlog_spark.wire.known_bookie import KnownBookie
from tests.crash.machine import SMALL, Machine
from tests.fixtures.metadata_worlds import delete_cookie
from tests.fixtures.resting import written
from tests.unit.bookie_tools.calls import content_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bookie_server.core.settings import StorageSettings
    from ledgerlog_spark.metadata.stores import MetadataStores

BOOKIE_ID = "bookie-7"


@pytest.fixture
async def stores() -> AsyncIterator[MetadataStores]:
    opened_stores = memory_metadata(MemoryNodes())
    await opened_stores.initialize()
    yield opened_stores
    await opened_stores.close()


@pytest.fixture
async def path(stores: MetadataStores, tmp_path: Path) -> Path:
    """The directory of a bookie that has stopped."""
    return await member(stores, tmp_path / "b7")


async def member(
    stores: MetadataStores,
    path: Path,
    bookie_id: str = BOOKIE_ID,
    *,
    seed: int = 1,
    settings: StorageSettings = SMALL,
    is_clean: bool = True,
) -> Path:
    """Write the directory of a bookie, its cookies and its record."""
    machine = Machine(seed, settings=settings)
    machine.path = str(path)
    machine.start()
    assert machine.add(1, (0,)) is Code.OK
    if is_clean:
        machine.stop()
    else:
        machine.crash()
    written(machine, path)
    cookie = Cookie(bookie_id, str(path), (str(path),), await stores.registration.instance_id())
    (path / "VERSION").write_bytes(cookie.encode())
    await stores.registration.write_cookie(bookie_id, cookie.encode(), None)
    await stores.known_bookies.write(bookie_id, identity(path).known(), None)
    return path


def renamed(path: Path, target: Path) -> Path:
    return path.rename(target)


def identity(path: Path) -> DirectoryIdentity:
    return identity_of(decode_manifest((path / "MANIFEST").read_bytes()))


async def would_start(stores: MetadataStores, path: Path, bookie_id: str = BOOKIE_ID) -> None:
    """Compare everything as a start does."""

    async def initialize(_first: Manifest | None) -> None:
        raise AssertionError("no first start")

    known = stores.known_bookies
    await check_cookies(stores.registration, bookie_id, [path], initialize, known)
    await DirectoryRecord(known, bookie_id, [str(path)]).check([identity(path)])


async def raise_record(stores: MetadataStores, changes: int) -> None:
    """The bookie has stored more, since a copy of its directory was made."""
    found = await stores.known_bookies.read(BOOKIE_ID)
    assert found is not None
    (directory,) = found.value.directories
    later = replace(directory, changes=directory.changes + changes)
    known = replace(found.value, directories=(later,))
    await stores.known_bookies.write(BOOKIE_ID, known, found.version)


async def content(stores: MetadataStores, path: Path) -> object:
    stored = await stored_about(stores, BOOKIE_ID)
    return content_of(path), stored.cookie, stored.known


async def register(stores: MetadataStores, *, read_only: bool = False) -> None:
    info = BookieInfo(BOOKIE_ID, "127.0.0.1", 3181)
    await stores.registration.register(info, read_only=read_only)


async def deleted(stores: MetadataStores) -> None:
    await delete(stores, await stored_about(stores, BOOKIE_ID))


# Show.


async def test_nothing_differs_for_the_directory_of_the_bookie(
    stores: MetadataStores, path: Path
) -> None:
    stored, held = await stored_about(stores, BOOKIE_ID), held_in(path)
    assert differences(stored, held) == []
    assert (stored.state, held.identity) == ("down", identity(path))
    await register(stores, read_only=True)
    assert (await stored_about(stores, BOOKIE_ID)).state == "read-only"
    await register(stores)
    assert (await stored_about(stores, BOOKIE_ID)).state == "writable"


async def test_each_difference_is_named(stores: MetadataStores, path: Path, tmp_path: Path) -> None:
    async def found(where: Path | None = path, bookie_id: str = BOOKIE_ID) -> str:
        held = None if where is None else held_in(where)
        return "; ".join(differences(await stored_about(stores, bookie_id), held))

    other = await member(stores, tmp_path / "b8", "bookie-8", seed=2)
    assert "belongs to bookie bookie-8" in await found(other)
    assert "another directory" in await found(other)
    moved = renamed(path, tmp_path / "moved")
    assert f"the cookie in {moved} names another path, {path}" in await found(moved)
    assert f"the cookie in the metadata store names another path, {path}" in await found(moved)
    assert "No such file" in await found(path) or "no file VERSION" in await found(path)
    renamed(moved, path)
    await raise_record(stores, 1)
    assert await found() == f"{path} is an older copy"
    (path / "VERSION").write_bytes(b"5\ngarbage")
    assert "not a readable cookie" in await found()
    (path / "MANIFEST").unlink()
    (path / "VERSION").write_bytes((other / "VERSION").read_bytes())
    assert "no MANIFEST" in await found()
    (path / "VERSION").unlink()
    assert "no file VERSION" in await found()
    await deleted(stores)
    assert await found(None) == (
        "the metadata store has no cookie of bookie bookie-7; bookie bookie-7 was taken out of "
        "service"
    )
    cookie = Cookie.decode((other / "VERSION").read_bytes())
    (other / "VERSION").write_bytes(replace(cookie, instance_id="x").encode())
    assert "another cluster, x" in await found(other, "bookie-8")


async def test_the_identity_that_a_downgrade_kept_is_shown(
    stores: MetadataStores, path: Path
) -> None:
    before = identity(path)
    async with opened(path) as directory:
        await rewrite_manifest(directory, FORMAT_VERSION_BEFORE)
    assert held_in(path).identity == before
    assert differences(await stored_about(stores, BOOKIE_ID), held_in(path)) == []


# Create.


async def test_a_cookie_that_the_store_lost_is_written_again(
    stores: MetadataStores, path: Path
) -> None:
    before = await content(stores, path)
    await delete_cookie(stores, BOOKIE_ID)
    with pytest.raises(CookieMismatchError, match=f"cookie create {path}"):
        await would_start(stores, path)
    stored = await create(stores, path)
    assert await content(stores, path) == before
    assert stored.cookie == Cookie.decode((path / "VERSION").read_bytes())
    await would_start(stores, path)


async def test_a_cookie_and_a_record_that_the_store_lost_are_written_again(
    stores: MetadataStores, path: Path
) -> None:
    await delete_cookie(stores, BOOKIE_ID)
    await stores.tree.delete(f"{stores.root}-bookies/{BOOKIE_ID}", None)
    stored = await create(stores, path)
    assert stored.known == identity(path).known()


async def test_a_damaged_cookie_in_the_store_is_written_again_or_deleted(
    stores: MetadataStores, path: Path
) -> None:
    async def damage() -> None:
        version = (await stored_about(stores, BOOKIE_ID)).cookie_version
        await stores.registration.write_cookie(BOOKIE_ID, b"5\ngarbage", version)
        found = differences(await stored_about(stores, BOOKIE_ID), held_in(path))
        assert found == [f"the metadata store has only a damaged cookie of bookie {BOOKIE_ID}"]

    before = await content(stores, path)
    await damage()
    await create(stores, path)
    assert await content(stores, path) == before
    await damage()
    await deleted(stores)
    assert await stores.registration.read_cookie(BOOKIE_ID) is None


async def test_no_cookie_is_created_beside_another_one(stores: MetadataStores, path: Path) -> None:
    before = await content(stores, path)
    with pytest.raises(ConfigurationError, match="cookie show"):
        await create(stores, path)
    assert await content(stores, path) == before


async def test_no_cookie_is_created_for_a_directory_without_one(
    stores: MetadataStores, path: Path, tmp_path: Path
) -> None:
    await delete_cookie(stores, BOOKIE_ID)
    (path / "VERSION").unlink()
    with pytest.raises(CookieMismatchError, match="no file VERSION"):
        await create(stores, path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(WrongDirectoryError):
        await create(stores, tmp_path / "empty")
    assert await stores.registration.read_cookie(BOOKIE_ID) is None


async def test_no_cookie_is_created_in_another_cluster(stores: MetadataStores, path: Path) -> None:
    other = memory_metadata(MemoryNodes())
    await other.initialize()
    with pytest.raises(CookieMismatchError, match="another cluster"):
        await create(other, path)
    assert await other.registration.read_cookie(BOOKIE_ID) is None
    await other.close()


@pytest.mark.parametrize("is_retired", [False, True])
async def test_no_cookie_is_created_for_an_older_copy(
    stores: MetadataStores, path: Path, is_retired: bool
) -> None:
    await raise_record(stores, 1)
    if is_retired:
        await deleted(stores)
    else:
        await delete_cookie(stores, BOOKIE_ID)
    with pytest.raises(OlderCopyError):
        await create(stores, path)
    assert await stores.registration.read_cookie(BOOKIE_ID) is None


async def test_a_directory_of_an_older_release_gets_only_its_cookie(
    stores: MetadataStores, path: Path
) -> None:
    async with opened(path) as directory:
        await rewrite_manifest(directory, FORMAT_VERSION_BEFORE)
    (path / "IDENTITY").unlink()
    await delete_cookie(stores, BOOKIE_ID)
    await stores.tree.delete(f"{stores.root}-bookies/{BOOKIE_ID}", None)
    stored = await create(stores, path)
    assert stored.cookie is not None
    assert stored.known is None


# Delete.


async def test_a_deleted_bookie_is_out_of_service_and_comes_back_with_its_data(
    stores: MetadataStores, path: Path, tmp_path: Path
) -> None:
    await deleted(stores)
    assert await stores.registration.known() == []
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CookieMismatchError, match="was in the cluster before") as refused:
        await would_start(stores, empty)
    assert "another bookie_id" in refused.value.message
    assert list(empty.iterdir()) == []
    with pytest.raises(CookieMismatchError, match=f"cookie create {path}"):
        await would_start(stores, path)
    with pytest.raises(RetiredBookieError):
        await DirectoryRecord(stores.known_bookies, BOOKIE_ID, ["/d"]).check([identity(path)])
    await create(stores, path)
    await would_start(stores, path)


async def test_a_bookie_of_an_older_release_is_deleted_and_comes_back(
    stores: MetadataStores, path: Path
) -> None:
    await stores.tree.delete(f"{stores.root}-bookies/{BOOKIE_ID}", None)
    await deleted(stores)
    stored = await create(stores, path)
    assert stored.known == identity(path).known()


async def test_a_directory_without_counters_comes_back_after_its_bookie_was_deleted(
    stores: MetadataStores, path: Path
) -> None:
    async with opened(path) as directory:
        await rewrite_manifest(directory, FORMAT_VERSION_BEFORE)
    (path / "IDENTITY").unlink()
    await stores.tree.delete(f"{stores.root}-bookies/{BOOKIE_ID}", None)
    await deleted(stores)
    stored = await create(stores, path)
    assert stored.known == KnownBookie(())
    assert differences(stored, held_in(path)) == []
    await would_start(stores, path)
    moved = renamed(path, path.with_name("moved"))
    await fix(stores, moved, None)
    await would_start(stores, moved)
    empty = path.with_name("empty")
    empty.mkdir()
    await delete_cookie(stores, BOOKIE_ID)
    with pytest.raises(CookieMismatchError, match="was in the cluster before"):
        await would_start(stores, empty)


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_registered_bookie_is_neither_deleted_nor_changed(
    stores: MetadataStores, path: Path, read_only: bool
) -> None:
    await register(stores, read_only=read_only)
    before = await content(stores, path)
    for command in (deleted(stores), create(stores, path), fix(stores, path, None)):
        with pytest.raises(ConfigurationError, match="is registered") as refused:
            await command
        assert refused.value.bookie_id == BOOKIE_ID
    assert await content(stores, path) == before


async def test_a_bookie_that_is_unknown_or_deleted_already_is_not_deleted(
    stores: MetadataStores, path: Path
) -> None:
    with pytest.raises(BookieUnavailableError, match="bookies list"):
        await delete(stores, await stored_about(stores, "bookie-99"))
    assert await stores.known_bookies.read("bookie-99") is None
    await deleted(stores)
    with pytest.raises(BookieUnavailableError):
        await deleted(stores)


async def test_a_bookie_without_cookie_is_retired_too(stores: MetadataStores, path: Path) -> None:
    await delete_cookie(stores, BOOKIE_ID)
    await deleted(stores)
    with pytest.raises(RetiredBookieError):
        await DirectoryRecord(stores.known_bookies, BOOKIE_ID, ["/d"]).check([identity(path)])


# Fix.


@pytest.fixture
def moved(path: Path) -> Path:
    return path.rename(path.with_name("moved"))


async def test_a_moved_directory_gets_its_path_and_a_new_id(
    stores: MetadataStores, moved: Path
) -> None:
    before = identity(moved)
    with pytest.raises(CookieMismatchError, match="cookie fix"):
        await would_start(stores, moved)
    assert await fix(stores, moved, BOOKIE_ID) == ["MANIFEST", "VERSION", "metadata store"]
    after = identity(moved)
    assert after == DirectoryIdentity(
        after.directory_id, before.starts, before.changes + 1, before.directory_id
    )
    assert after.directory_id != before.directory_id
    assert decode_manifest((moved / "MANIFEST").read_bytes()).path == str(moved)
    stored = await stored_about(stores, BOOKIE_ID)
    assert stored.known == after.known()
    assert stored.cookie == Cookie.decode((moved / "VERSION").read_bytes())
    assert stored.cookie.ledger_directories == (str(moved),)
    assert stored.cookie.journal_directory == str(moved)
    await would_start(stores, moved)
    content_after = await content(stores, moved)
    assert await fix(stores, moved, None) == []
    assert await content(stores, moved) == content_after


async def test_the_original_of_a_fixed_copy_is_refused(
    stores: MetadataStores, path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    await fix(stores, copy, None)
    with pytest.raises(CookieMismatchError):
        await would_start(stores, path)
    with pytest.raises(SwappedDirectoryError):
        await fix(stores, path, None)


class PowerError(Exception):
    pass


async def cut_fix(
    stores: MetadataStores, path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A fix that ends before one of its steps."""

    async def cut(*_: object) -> None:
        raise PowerError

    with monkeypatch.context() as patch:
        patch.setattr(cookies, step, cut)
        with pytest.raises(PowerError):
            await fix(stores, path, None)


@pytest.mark.parametrize("step", ["_write_cookie", "_write_store"])
async def test_a_fix_that_was_cut_off_is_completed_by_the_next_one(
    stores: MetadataStores, moved: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await cut_fix(stores, moved, monkeypatch, step)
    cut_off = identity(moved)
    with pytest.raises(CookieMismatchError):
        await would_start(stores, moved)
    assert (await fix(stores, moved, None))[-1] == "metadata store"
    assert identity(moved) == cut_off
    await would_start(stores, moved)


@pytest.mark.parametrize("step", ["_write_cookie", "_write_store"])
async def test_a_copy_with_a_fix_that_was_cut_off_is_refused_after_a_run_of_the_original(
    stores: MetadataStores, path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    for _ in range(2):
        await cut_fix(stores, copy, monkeypatch, step)
    await raise_record(stores, 1)
    with pytest.raises(OlderCopyError):
        await fix(stores, copy, None)


@pytest.mark.parametrize("step", ["_write_cookie", "_write_store"])
async def test_a_directory_that_is_moved_again_after_each_cut_is_still_its_own(
    stores: MetadataStores, moved: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = identity(moved)
    for name in ("second", "third"):
        await cut_fix(stores, moved, monkeypatch, step)
        moved = renamed(moved, moved.with_name(name))
    assert (await fix(stores, moved, None))[-1] == "metadata store"
    after = identity(moved)
    assert (after.changes, after.previous_id) == (before.changes + 1, before.directory_id)
    await would_start(stores, moved)


async def test_a_copy_that_is_moved_again_is_refused_after_a_run_of_the_original(
    stores: MetadataStores, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    await cut_fix(stores, copy, monkeypatch, "_write_store")
    copy = renamed(copy, path.with_name("second"))
    await cut_fix(stores, copy, monkeypatch, "_write_store")
    await raise_record(stores, 1)
    with pytest.raises(OlderCopyError):
        await fix(stores, copy, None)


async def test_a_fix_keeps_the_id_of_the_bookie(stores: MetadataStores, moved: Path) -> None:
    before = await content(stores, moved)
    with pytest.raises(CookieMismatchError, match=f"start it with --bookie-id {BOOKIE_ID}"):
        await fix(stores, moved, "bookie-8")
    assert await content(stores, moved) == before


async def test_a_fix_needs_a_cookie_in_the_store(stores: MetadataStores, moved: Path) -> None:
    await delete_cookie(stores, BOOKIE_ID)
    with pytest.raises(ConfigurationError, match="cookie create"):
        await fix(stores, moved, None)
    await create(stores, moved)
    assert await fix(stores, moved, None) == ["MANIFEST", "VERSION", "metadata store"]


async def test_a_fix_hides_no_loss(stores: MetadataStores, moved: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(WrongDirectoryError):
        await fix(stores, empty, None)
    shutil.copy(moved / "VERSION", empty / "VERSION")
    with pytest.raises(Exception, match="MANIFEST"):
        await fix(stores, empty, None)
    assert [each.name for each in empty.iterdir() if each.name != "LOCK"] == ["VERSION"]
    other = await member(stores, tmp_path / "b8", "bookie-8", seed=2)
    shutil.copy(moved / "VERSION", other / "VERSION")
    before = await content(stores, other)
    with pytest.raises(SwappedDirectoryError):
        await fix(stores, other, None)
    assert await content(stores, other) == before
    await raise_record(stores, 1)
    before = await content(stores, moved)
    with pytest.raises(OlderCopyError):
        await fix(stores, moved, None)
    assert await content(stores, moved) == before


async def test_a_fix_leaves_the_journal_of_the_original_alone(
    stores: MetadataStores, tmp_path: Path
) -> None:
    settings = replace(SMALL, mode_settings=ModeSettings(BookieWriteMode.JOURNAL, "/journal"))
    path = await member(stores, tmp_path / "b9", settings=settings, is_clean=False)
    moved = renamed(path, tmp_path / "moved")
    before = await content(stores, moved)
    with pytest.raises(MovedDirectoryError):
        await fix(stores, moved, None)
    assert await content(stores, moved) == before


async def test_a_write_of_another_process_stops_a_fix_before_the_store(
    stores: MetadataStores, moved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the MANIFEST is moved already, and the next fix completes it."""
    write = KnownBookies.write_with_cookie

    async def overtaken(self: KnownBookies, *arguments: object) -> None:
        monkeypatch.setattr(KnownBookies, "write_with_cookie", write)
        await deleted(stores)
        await write(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(KnownBookies, "write_with_cookie", overtaken)
    with pytest.raises(Exception, match="another process"):
        await fix(stores, moved, None)
    assert await stores.registration.read_cookie(BOOKIE_ID) is None
    with pytest.raises(DirectoryIdentityError):
        await DirectoryRecord(stores.known_bookies, BOOKIE_ID, ["/d"]).check([identity(moved)])


def test_a_kept_identity_has_the_path_for_the_next_fix() -> None:
    assert b'"path":"/data/b7"' in encode_identity(Manifest(path="/data/b7"))
