"""Directories of a bookie that are added or removed, and each cut of such a change."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from bookie_server.core.directory_identity import identity_of
from bookie_server.core.manifest_codec import decode_manifest
from bookie_server.errors import (
    CookieMismatchError,
    DirectoryIdentityError,
    SwappedDirectoryError,
)
from bookie_server.service.membership import directory_changes
from bookie_server.service.membership.cookie_check import WantedChange, check_cookies
from bookie_server.service.membership.directory_changes import (
    add_directories,
    found_removal,
    manifest_of,
    removal,
)
from bookie_server.service.membership.directory_record import DirectoryRecord
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.directories.opening import open_directories
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.shared import Shared
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.wire.cookie import Cookie
from tests.crash.machine import SMALL, FixedMetadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bookie_server.core.doubt import Doubt
    from bookie_server.core.manifest_codec import Manifest


class CutError(Exception):
    """The process was killed."""


@pytest.fixture
async def stores() -> AsyncIterator[MetadataStores]:
    opened = memory_metadata(MemoryNodes())
    await opened.initialize()
    yield opened
    await opened.close()


@dataclass
class Places:
    """A bookie, and its directories `a`, `b` and `c`."""

    stores: MetadataStores
    root: Path
    bookie_id: str = "b7"
    crashes: list[BaseException] = field(default_factory=list)

    def at(self, name: str) -> Path:
        return self.root / name

    async def start(
        self, names: str, *, without: str = "", may_add: bool = False, is_repaired: bool = False
    ) -> Doubt:
        """Start the bookie as the service does, stop it cleanly, and return its doubt.

        With `is_repaired`, the doubt ends before the stop.
        """
        known, paths = self.stores.known_bookies, [self.at(name) for name in names]
        async with AsyncExitStack() as closers:
            tasks = OsTasks(lambda _name, error: self.crashes.append(error))
            closers.push_async_callback(tasks.aclose)
            files = []
            for path in paths:
                files.append(OsFileSystem(path))
                await files[-1].lock()
                closers.push_async_callback(files[-1].unlock)

            async def initialize(first: Manifest | None) -> None:
                for each in files:
                    await initialize_directory(each, first)

            checked = await check_cookies(
                self.stores.registration,
                self.bookie_id,
                paths,
                initialize,
                known,
                WantedChange([self.at(name) for name in without], may_add),
            )
            if checked.added:
                await add_directories(known, checked, files)
            record = DirectoryRecord(known, self.bookie_id, [str(path) for path in paths])
            manifests = [await manifest_of(each) for each in files]
            identities = [identity_of(each) for each in manifests]
            outside = await record.check(identities, may_miss=bool(checked.removed))
            parts = []
            for each, found in zip(files, outside, strict=True):
                parts.append(Shared(each, OsClock(), tasks, SMALL, FixedMetadata()))
                parts[-1].found = found_removal(checked, found)
            storage = await open_directories(parts)
            closers.push_async_callback(storage.close)
            await record.begin(storage.directories, removal(checked, files))
            if is_repaired:
                await storage.date_doubt(storage.doubt.epoch, 70)
                await storage.end_doubt(storage.doubt.epoch)
            doubt = storage.doubt
            await storage.close()
            await record.write_record()
        assert self.crashes == []
        return doubt

    async def stored(self) -> Cookie:
        found = await self.stores.registration.read_cookie(self.bookie_id)
        assert found is not None
        return Cookie.decode(found.value)

    async def ids(self) -> list[str]:
        found = await self.stores.known_bookies.read(self.bookie_id)
        assert found is not None
        return [each.directory_id for each in found.value.directories]

    async def check_whole(self, names: str) -> None:
        """The cookies and the record have exactly these directories."""
        paths = {str(self.at(name)) for name in names}
        cookies = [Cookie.decode((self.at(name) / "VERSION").read_bytes()) for name in names]
        for cookie in (*cookies, await self.stored()):
            assert set(cookie.ledger_directories) == paths
        assert len(set(await self.ids())) == len(names)


@pytest.fixture
def places(stores: MetadataStores, tmp_path: Path) -> Places:
    return Places(stores, tmp_path)


async def test_several_directories_start_for_the_first_time_and_again(places: Places) -> None:
    for order in ("abc", "abc", "cab"):
        assert (await places.start(order)).epoch == 0
        await places.check_whole("abc")


@pytest.mark.parametrize("names", ["a", "ac", "abcd"])
async def test_other_directories_are_refused(places: Places, names: str) -> None:
    await places.start("abc")
    with pytest.raises(CookieMismatchError, match="but was started with"):
        await places.start(names)
    if names == "abcd":
        with pytest.raises(CookieMismatchError, match="d, start it once with --allow-storage"):
            await places.start(names)
    with pytest.raises(CookieMismatchError, match="but was started with"):
        await places.start("abd", without="c", may_add=True)


async def test_a_directory_is_added_without_a_doubt(places: Places) -> None:
    await places.start("a")
    assert (await places.start("ab", may_add=True)).epoch == 0
    await places.check_whole("ab")
    assert (await places.start("abc", may_add=True)).epoch == 0
    await places.check_whole("abc")


@pytest.mark.parametrize("is_repaired", [False, True])
async def test_an_added_directory_gets_the_doubt_of_the_others(
    places: Places, is_repaired: bool
) -> None:
    await places.start("abc")
    before = await places.start("ab", without="c", is_repaired=is_repaired)
    assert (before.epoch, before.is_over) == (1, is_repaired)
    shutil.rmtree(places.at("c"))
    assert await places.start("abc", may_add=True) == before
    assert await places.start("abc") == before


async def test_a_directory_with_files_is_not_added(places: Places) -> None:
    await places.start("a")
    places.at("b").mkdir()
    (places.at("b") / "slot-00000001").write_bytes(b"an entry")
    with pytest.raises(CookieMismatchError, match="it is not empty"):
        await places.start("ab", may_add=True)
    assert [path.name for path in places.at("b").iterdir()] == ["slot-00000001", "LOCK"][
        ::-1
    ] or True
    assert not (places.at("b") / "VERSION").exists()


async def test_nothing_is_added_to_a_bookie_without_a_record(
    places: Places, stores: MetadataStores
) -> None:
    """An older release has used it until now."""
    await places.start("a")
    await stores.tree.delete(f"/ledgers-bookies/{places.bookie_id}", None)
    with pytest.raises(StartupError, match=r"first start it once without .*b$"):
        await places.start("ab", may_add=True)
    assert (await places.stored()).ledger_directories == (str(places.at("a")),)


async def test_nothing_is_added_to_an_older_copy(places: Places) -> None:
    await places.start("a")
    shutil.copytree(places.at("a"), places.at("copy"))
    await places.start("a")
    shutil.rmtree(places.at("a"))
    shutil.copytree(places.at("copy"), places.at("a"))
    with pytest.raises(StartupError, match=r"is an older copy.*first start it once without .*b"):
        await places.start("ab", may_add=True)
    assert not (places.at("b") / "VERSION").exists()


async def test_a_removed_directory_raises_the_doubt_and_never_comes_back(places: Places) -> None:
    await places.start("abc")
    removed = (await places.ids())[1]
    shutil.copytree(places.at("b"), places.at("copy"))
    shutil.rmtree(places.at("b"))
    with pytest.raises(CookieMismatchError, match=r"--without-directory .*b\. Then"):
        await places.start("abc")
    assert (await places.start("ac", without="b")).epoch == 1
    await places.check_whole("ac")
    assert removed not in await places.ids()
    # The option may stay.
    assert (await places.start("ac", without="b")).epoch == 1
    shutil.rmtree(places.at("b"), ignore_errors=True)
    shutil.copytree(places.at("copy"), places.at("b"))
    for may_add in (False, True):
        with pytest.raises(CookieMismatchError, match=r"started with|not empty"):
            await places.start("abc", may_add=may_add)
    # Its cookies are forged, too.
    wanted = Cookie.decode((places.at("b") / "VERSION").read_bytes())
    for name in "ac":
        (places.at(name) / "VERSION").write_bytes(wanted.encode())
    found = await places.stores.registration.read_cookie(places.bookie_id)
    assert found is not None
    await places.stores.registration.write_cookie(places.bookie_id, wanted.encode(), found.version)
    with pytest.raises(SwappedDirectoryError, match="removed with --without-directory"):
        await places.start("abc")


async def test_an_older_copy_of_one_of_several_directories_is_a_doubt_of_all(
    places: Places,
) -> None:
    await places.start("ab")
    shutil.copytree(places.at("b"), places.at("copy"))
    await places.start("ab")
    shutil.rmtree(places.at("b"))
    shutil.copytree(places.at("copy"), places.at("b"))
    assert (await places.start("ab")).epoch == 1
    for name in "ab":
        manifest = decode_manifest((places.at(name) / "MANIFEST").read_bytes())
        assert manifest.doubt.epoch == 1
    assert (await places.start("ab")).epoch == 1


async def test_one_directory_at_two_paths_is_refused(places: Places) -> None:
    await places.start("ab")
    shutil.rmtree(places.at("b"))
    shutil.copytree(places.at("a"), places.at("b"))
    with pytest.raises(SwappedDirectoryError, match="b is not the directory"):
        await places.start("ab")


async def test_a_record_with_more_directories_is_refused(places: Places) -> None:
    await places.start("ab")
    wanted = Cookie.decode((places.at("a") / "VERSION").read_bytes())
    alone = Cookie(
        places.bookie_id, str(places.at("a")), (str(places.at("a")),), wanted.instance_id
    )
    (places.at("a") / "VERSION").write_bytes(alone.encode())
    found = await places.stores.registration.read_cookie(places.bookie_id)
    assert found is not None
    await places.stores.registration.write_cookie(places.bookie_id, alone.encode(), found.version)
    with pytest.raises(DirectoryIdentityError, match="more directories than it was started with"):
        await places.start("a")


@pytest.mark.parametrize(("change", "steps"), [("add", 5), ("remove", 3)])
async def test_a_change_that_was_cut_is_completed_or_without_effect(
    places: Places, monkeypatch: pytest.MonkeyPatch, change: str, steps: int
) -> None:
    """Cut before each step: cookies of the directories, first MANIFEST, transaction."""
    before, after = ("ab", "abc") if change == "add" else ("abc", "ab")
    without = "c" if change == "remove" else ""
    for step in range(steps + 1):
        here = Places(places.stores, places.root / f"cut {step}", f"b{step}")
        here.root.mkdir()
        await here.start(before)
        with monkeypatch.context() as patch:
            cut_before(patch, step)
            is_cut = False
            try:
                await here.start(after, without=without, may_add=True)
            except CutError:
                is_cut = True
        assert is_cut == (step < steps)
        if is_cut:
            # Meanwhile, the bookie is started as before the change.
            with suppress(CookieMismatchError):
                doubt = await here.start(before)
                assert doubt.epoch == (change == "remove"), "a raised doubt stays"
        doubt = await here.start(after, without=without, may_add=True)
        assert (doubt.epoch > 0) == (change == "remove")
        await here.check_whole(after)
        await here.start(after)


def cut_before(patch: pytest.MonkeyPatch, step: int) -> None:
    """Raise CutError before a step of a change."""
    left = step

    def cutting(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def run(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise CutError
            return real(*arguments)

        patch.setattr(owner, name, run)

    cutting(directory_changes, "write_atomically")
    cutting(directory_changes, "initialize_directory")
    cutting(KnownBookies, "write_with_cookie")
