"""The promises of `RecoverySwitch` and `CheckTimes`, in memory and on a real ZooKeeper."""

from __future__ import annotations

import pytest

from ledgerlog_spark.errors import MetadataFormatError, WireFormatError
from ledgerlog_spark.metadata.replication.ports import Check, Walk, WalkPosition
from ledgerlog_spark.metadata.stores import MetadataStores
from tests.fixtures.metadata_worlds import Signal, World

Two = tuple[MetadataStores, MetadataStores]
DELAY = "underreplication/lostBookieRecoveryDelay"


async def test_auto_recovery_is_enabled_until_it_is_disabled(two: Two) -> None:
    first, second = two
    assert await second.recovery_switch.is_enabled()
    assert not await first.recovery_switch.enable()
    assert await first.recovery_switch.disable()
    assert not await second.recovery_switch.disable()
    assert not await second.recovery_switch.is_enabled()
    assert await first.tree.stat(f"{first.root}/underreplication/disable") is not None
    assert await second.recovery_switch.enable()
    assert await first.recovery_switch.is_enabled()


async def test_lost_answers_of_the_switch_are_settled(world: World, two: Two) -> None:
    first, second = two
    switch = first.recovery_switch
    assert await switch.disable()
    assert await switch.enable()
    world.lose_next_reply(first.tree)
    assert await switch.disable()
    assert not await second.recovery_switch.is_enabled()
    world.lose_next_reply(first.tree)
    assert await switch.enable()
    assert await second.recovery_switch.is_enabled()


async def test_a_change_of_the_switch_is_noticed(two: Two) -> None:
    first, second = two
    noticed = Signal()
    cancel = second.recovery_switch.watch_enabled(noticed)
    await second.tree.sync()  # the store has the watch, or the session announces the change
    await first.recovery_switch.disable()
    await noticed.called()
    await first.recovery_switch.enable()
    await noticed.called()
    cancel()


async def test_the_delay_is_stored_as_apache_stores_it(two: Two) -> None:
    first, second = two
    assert await second.recovery_switch.lost_bookie_delay() is None
    await first.recovery_switch.initialize_delay(60)
    await first.recovery_switch.initialize_delay(5)
    found = await second.recovery_switch.lost_bookie_delay()
    assert found is not None
    assert found.value == 60
    await first.recovery_switch.set_lost_bookie_delay(0)
    changed = await second.recovery_switch.lost_bookie_delay()
    assert changed is not None
    assert changed.value == 0
    assert (await second.tree.get(f"{first.root}/{DELAY}")).value == b"0"


async def test_an_audit_now_is_a_new_version_with_the_same_delay(two: Two) -> None:
    first, second = two
    await first.recovery_switch.set_lost_bookie_delay(17)
    before = await second.recovery_switch.lost_bookie_delay()
    noticed = Signal()
    cancel = second.recovery_switch.watch_delay(noticed)
    await second.tree.sync()  # the store has the watch, or the session announces the change
    await first.recovery_switch.audit_now()
    await noticed.called()
    after = await second.recovery_switch.lost_bookie_delay()
    assert before is not None
    assert after is not None
    assert (after.value, after.version.number) == (17, before.version.number + 1)
    cancel()


async def test_an_audit_now_without_a_delay_stores_the_default(two: Two) -> None:
    first, _ = two
    await first.recovery_switch.audit_now()
    found = await first.recovery_switch.lost_bookie_delay()
    assert found is not None
    assert found.value == 60


@pytest.mark.parametrize(("data", "seconds"), [(b"7", 7), (b"-1", 0), (b"+3", 3)])
async def test_a_delay_of_apache_is_read(two: Two, data: bytes, seconds: int) -> None:
    first, _ = two
    await first.tree.create(f"{first.root}/{DELAY}", data, make_parents=True)
    found = await first.recovery_switch.lost_bookie_delay()
    assert found is not None
    assert found.value == seconds


@pytest.mark.parametrize("data", [b"", b"soon", b"1" * 11, b"\xff", b" 1"])
async def test_a_damaged_delay_is_a_clear_error(two: Two, data: bytes) -> None:
    first, _ = two
    await first.tree.create(f"{first.root}/{DELAY}", data, make_parents=True)
    with pytest.raises(MetadataFormatError, match="not a delay"):
        await first.recovery_switch.lost_bookie_delay()


async def test_a_delay_has_bounds(two: Two) -> None:
    for seconds in (-1, 1 << 31):
        with pytest.raises(WireFormatError, match="is not between 0"):
            await two[0].recovery_switch.set_lost_bookie_delay(seconds)


@pytest.mark.parametrize("check", Check)
async def test_the_time_of_a_check_is_apaches_message(two: Two, check: Check) -> None:
    first, second = two
    assert await second.check_times.time_ms(check) is None
    for time_ms in (5, 1_764_240_000_000):
        await first.check_times.set_time_ms(check, time_ms)
        assert await second.check_times.time_ms(check) == time_ms
    data = (await first.tree.get(f"{first.root}/underreplication/{check.value}")).value
    assert data == bytes.fromhex("08 80 88 98 a7 ac 33")


@pytest.mark.parametrize(("data", "time_ms"), [(b"", None), (b"\x10\x05", None)])
async def test_a_check_without_a_time_never_ran(two: Two, data: bytes, time_ms: int | None) -> None:
    first, _ = two
    path = f"{first.root}/underreplication/{Check.REPLICAS.value}"
    await first.tree.create(path, data, make_parents=True)
    assert await first.check_times.time_ms(Check.REPLICAS) == time_ms


async def test_a_damaged_time_is_a_clear_error(two: Two) -> None:
    first, _ = two
    path = f"{first.root}/underreplication/{Check.REPLICAS.value}"
    await first.tree.create(path, b"\x08", make_parents=True)
    with pytest.raises(MetadataFormatError, match="cannot be read"):
        await first.check_times.time_ms(Check.REPLICAS)


async def test_a_successor_continues_a_walk(world: World, two: Two) -> None:
    first, second = two
    assert await second.check_times.position(Walk.DIGESTS) == WalkPosition()
    for position in (WalkPosition(5, 17, 0), WalkPosition(-1, 18, 1)):
        world.lose_next_reply(first.tree)
        await first.check_times.set_position(Walk.DIGESTS, position)
        assert await second.check_times.position(Walk.DIGESTS) == position
    assert await second.check_times.position(Walk.LEDGERS) == WalkPosition()


async def test_a_damaged_position_begins_the_walk_again(two: Two) -> None:
    first, _ = two
    path = f"{first.root}-repair/walk/digests"
    await first.tree.create(path, b"{", make_parents=True)
    assert await first.check_times.position(Walk.DIGESTS) == WalkPosition()
    await first.check_times.set_position(Walk.DIGESTS, WalkPosition(5))
    assert await first.check_times.position(Walk.DIGESTS) == WalkPosition(5)
