"""A crash at each disk operation of starts, rises and stops, with the record in the cluster.

The record is written by the code of the service. The metadata store is a value of the test, which
no crash changes.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bookie_server.core.directory_identity import DirectoryIdentity, FoundOutside, identity_of
from bookie_server.core.kept_identity import NAME as IDENTITY_NAME
from bookie_server.core.manifest_codec import FORMAT_VERSION_BEFORE, decode_version
from bookie_server.errors import (
    SwappedDirectoryError,
    UncountedDirectoryError,
)
from bookie_server.service.membership.directory_record import DirectoryRecord
from bookie_server.storage.files.manifest import ManifestStore
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from bookie_server.tools.directory import NoMetadata, RestingDirectory
from bookie_server.tools.versions import rewrite_manifest
from ledgerlog_spark.errors import MetadataVersionError
from ledgerlog_spark.model import Code, Version, Versioned
from ledgerlog_spark.wire.known_bookie import KnownBookie
from tests.crash.machine import SMALL, Machine, add_request, is_cut
from tests.sim.disk import SimDisk

BOOKIE_ID = "b1"


class Store:
    """The part of `KnownBookies` that a bookie uses, in memory."""

    def __init__(self) -> None:
        self.record: KnownBookie | None = None
        self.number = 0

    async def read(self, bookie_id: str) -> Versioned[KnownBookie] | None:
        assert bookie_id == BOOKIE_ID
        return None if self.record is None else Versioned(self.record, self.version)

    async def write(self, bookie_id: str, known: KnownBookie, version: Version | None) -> Version:
        assert bookie_id == BOOKIE_ID
        if version != (None if self.record is None else self.version):
            raise MetadataVersionError("changed")
        self.record, self.number = known, self.number + 1
        return self.version

    @property
    def version(self) -> Version:
        return Version(self.number, 1)


class Member:
    """A simulated bookie with its record: starts, stores, and stops as the service does."""

    def __init__(self, seed: int = 1) -> None:
        self.machine = Machine(seed)
        self.store = Store()
        self.record = self.new_record()

    def new_record(self) -> DirectoryRecord:
        return DirectoryRecord(self.store, BOOKIE_ID, ["/data"])  # type: ignore[arg-type]

    async def check(self) -> FoundOutside:
        if self.machine.is_new:
            return FoundOutside()
        files = self.machine.make_files()
        manifest = await ManifestStore(files).read(await files.names())
        await files.unlock()
        (found,) = await self.record.check([identity_of(manifest)])
        return found

    async def opening(self) -> LedgerStorage:
        self.record = self.new_record()
        self.machine.found = await self.check()
        storage = await self.machine.opening()
        await self.record.begin([storage])
        return storage

    def start(self) -> None:
        self.machine.storage = self.machine.scheduler.run(self.opening(), self.machine.host)

    def advance(self) -> None:
        self.machine.scheduler.run(self.record.advance(), self.machine.host)

    async def closing(self, storage: LedgerStorage) -> None:
        await storage.close()
        await self.record.write_record()

    def stop(self) -> None:
        machine = self.machine
        machine.scheduler.run(self.closing(machine.serving), machine.host)
        machine.crash()

    def add(self, entry_id: int) -> None:
        assert self.machine.add(1, (entry_id,)) is Code.OK

    @property
    def known_changes(self) -> int:
        return 0 if self.store.record is None else self.store.record.directories[0].changes

    def identity(self) -> DirectoryIdentity:
        return identity_of(self.machine.manifest())

    def copy(self) -> SimDisk:
        """A copy of what a program reads in the directory now, all of it synced."""
        copy = SimDisk(Random(99))
        for name, content in self.machine.disk.seen_names.items():
            same = deepcopy(content)
            same.durable[:] = same.seen
            same.unsynced.clear()
            copy.seen_names[name] = copy.durable_names[name] = same
        return copy

    def put_back(self, copy: SimDisk) -> None:
        self.machine.disk = copy
        self.machine.crash()


async def life(member: Member) -> None:
    """Two runs, with a rise in the first one; the process of the second one is not stopped."""
    storage = await member.opening()
    host = member.machine.host
    for number in range(2):
        stored = host.future()
        storage.add(add_request(1, (number,)), stored.set_result)
        assert await stored is Code.OK
        await member.record.advance()
    await member.closing(storage)
    storage = await member.opening()
    stored = host.future()
    storage.add(add_request(1, (2,)), stored.set_result)
    assert await stored is Code.OK
    await member.record.advance()


def test_after_a_crash_at_each_operation_the_directory_is_the_newest() -> None:
    number, ahead = 0, 0
    while True:
        number += 1
        member = Member()
        if not is_cut(member.machine, partial(life, member), number):
            break
        assert member.machine.is_new or member.identity().changes >= member.known_changes
        if not member.machine.is_new:
            ahead += member.identity().changes > member.known_changes
        before = member.known_changes
        member.start()
        assert member.known_changes == member.identity().changes > before
        member.add(9)
        member.stop()
        member.start()
    assert number > 40
    assert ahead > 3, "no crash came between the two writes"


@pytest.mark.parametrize("end", ["stop", "kill", "power"])
def test_an_older_copy_starts_in_doubt_and_the_newest_state_does_not(end: str) -> None:
    member = Member()
    member.start()
    member.add(0)
    copies = [member.copy()]
    member.advance()
    member.add(1)
    copies.append(member.copy())  # of the same run, but after a rise
    member.advance()
    member.add(2)
    if end == "stop":
        copies.append(member.copy())  # a clean stop raises the counter too
    {"stop": member.stop, "kill": member.machine.crash, "power": member.machine.lose_power}[end]()
    newest, known = member.copy(), member.store.record
    for copy in copies:
        member.put_back(deepcopy(copy))
        member.store.record = known
        member.start()
        storage = member.machine.serving
        assert storage.doubt.epoch == 1
        assert "older copy" in storage.found_losses[0]
        assert member.machine.read(1, 2)[0] in (Code.OK, Code.IO_ERROR)
        assert member.machine.read(1, 9)[0] is Code.IO_ERROR
        assert known is not None
        assert member.known_changes > known.directories[0].changes
    member.put_back(newest)
    member.store.record = known
    member.start()
    assert member.machine.serving.doubt.epoch == 0
    assert member.machine.read(1, 1)[0] is Code.OK


def test_an_older_copy_has_a_newer_epoch_than_the_record() -> None:
    """Otherwise nobody who compares epochs would notice the second loss."""
    member = Member()
    member.start()
    member.add(0)
    copy = member.copy()
    member.advance()
    member.add(1)
    member.machine.scheduler.run(member.machine.serving.raise_doubt(), member.machine.host)
    member.advance()
    assert member.store.record is not None
    assert member.store.record.directories[0].doubt_epoch == 1
    member.machine.crash()
    member.put_back(copy)
    member.start()
    assert member.machine.serving.doubt.epoch == 2


def test_after_a_crash_at_each_operation_an_older_copy_is_still_in_doubt() -> None:
    number = 0
    while True:
        number += 1
        member = Member()
        member.start()
        member.add(0)
        copy = member.copy()
        member.advance()
        member.add(1)
        member.advance()
        member.machine.crash()
        member.put_back(copy)
        is_over = not is_cut(member.machine, member.opening, number)
        member.start()
        assert member.machine.serving.doubt.epoch >= 1, number
        assert member.machine.read(1, 1)[0] in (Code.OK, Code.IO_ERROR)
        assert member.machine.read(1, 9)[0] is Code.IO_ERROR
        if is_over:
            break
    assert number > 10


def test_a_copy_that_is_younger_than_the_last_rise_is_not_recognised() -> None:
    """The limit of the counter: docs/how-to/cookies.md states it."""
    member = Member()
    member.start()
    member.add(0)
    member.advance()
    copy = member.copy()
    member.add(1)
    member.machine.crash()
    member.put_back(copy)
    member.start()
    assert member.machine.read(1, 1)[0].is_absent


def test_the_directory_of_another_bookie_is_refused() -> None:
    member, other = Member(1), Member(2)
    for each in (member, other):
        each.start()
        each.stop()
    member.put_back(other.machine.disk)
    with pytest.raises(SwappedDirectoryError):
        member.start()


def test_a_start_with_another_path_keeps_the_id_from_before() -> None:
    member = Member()
    member.start()
    member.stop()
    before = member.identity()
    member.machine.path = "/moved"
    member.start()
    after = member.identity()
    assert (after.previous_id, after.changes) == (before.directory_id, before.changes + 1)
    assert after.directory_id not in ("", before.directory_id)
    member.stop()
    member.start()
    assert member.identity().previous_id == before.directory_id


def rewrite(machine: Machine, version: int) -> None:
    async def work() -> None:
        files: Any = machine.make_files()
        host = machine.host
        shared = Shared(files, host, host, SMALL, NoMetadata())
        names = await shared.files.names()
        shared.states.update(await shared.store.load(names))
        directory = RestingDirectory(Path("/data"), shared, frozenset(names))
        await rewrite_manifest(directory, version)

    machine.scheduler.run(work(), machine.host)
    machine.crash()


def manifest_of(machine: Machine) -> bytes:
    return bytes(machine.disk.durable_names["MANIFEST"].durable)


def test_a_downgrade_and_an_upgrade_keep_the_identity() -> None:
    member = Member()
    member.start()
    member.add(0)
    member.stop()
    before = member.identity()
    older = member.copy()
    rewrite(member.machine, FORMAT_VERSION_BEFORE)
    assert decode_version(manifest_of(member.machine)) == FORMAT_VERSION_BEFORE
    assert member.identity() == DirectoryIdentity()
    member.start()
    assert member.identity() == replace(before, starts=2, changes=before.changes + 1)
    assert IDENTITY_NAME not in member.machine.disk.durable_names
    member.stop()
    member.put_back(older)
    member.start()
    assert member.machine.serving.doubt.epoch == 1


def test_a_crash_in_the_first_start_after_a_downgrade_costs_nothing() -> None:
    number = 0
    is_over = False
    while not is_over:
        number += 1
        member = Member()
        member.start()
        member.stop()
        before = member.identity()
        rewrite(member.machine, FORMAT_VERSION_BEFORE)
        is_over = not is_cut(member.machine, member.opening, number)
        member.start()
        after = member.identity()
        assert after.directory_id == before.directory_id
        assert after.changes > before.changes
    assert number > 10


def test_a_directory_without_counters_is_refused_if_the_cluster_has_some() -> None:
    """A copy from before an upgrade looks like this."""
    member = Member()
    member.start()
    member.stop()
    rewrite(member.machine, FORMAT_VERSION_BEFORE)
    copy = member.copy()
    del copy.seen_names[IDENTITY_NAME], copy.durable_names[IDENTITY_NAME]
    member.put_back(copy)
    with pytest.raises(UncountedDirectoryError):
        member.start()
    member.store.record = None  # as in a cluster of the release before
    member.start()
    assert member.known_changes == 1


def test_an_identity_that_a_cut_downgrade_left_is_not_used() -> None:
    member = Member()
    member.start()
    member.stop()
    rewrite(member.machine, FORMAT_VERSION_BEFORE)
    left = deepcopy(member.machine.disk.durable_names[IDENTITY_NAME])
    for _ in range(2):
        member.start()
        member.stop()
    newest = member.identity()
    disk = member.machine.disk
    disk.seen_names[IDENTITY_NAME] = disk.durable_names[IDENTITY_NAME] = left
    member.start()
    assert member.identity() == replace(
        newest, starts=newest.starts + 1, changes=newest.changes + 1
    )


def test_a_full_device_delays_the_counter_and_loses_no_rise() -> None:
    member = Member()
    member.start()
    member.add(0)
    before = member.identity().changes
    member.machine.disk.faults.capacity_bytes = 0
    for number in range(1, 3):
        member.advance()
        assert member.known_changes == before
        member.machine.fence(number)  # accepted, although the bookie is read-only
    member.machine.disk.faults.capacity_bytes = None
    member.advance()
    assert member.known_changes == member.identity().changes == before + 1
    member.stop()
    assert member.known_changes == member.identity().changes == before + 2


def test_a_copy_from_before_a_fence_or_a_deletion_starts_in_doubt() -> None:
    for change in (Machine.fence, Machine.drop):
        member = Member()
        member.start()
        member.add(0)
        member.advance()
        copy = member.copy()
        change(member.machine, 1)
        member.advance()
        member.machine.crash()
        member.put_back(copy)
        member.start()
        assert member.machine.serving.doubt.epoch == 1
