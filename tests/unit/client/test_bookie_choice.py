"""A client chooses bookies by their registrations, the topology and its own failures."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.client import bookies as choice
from ledgerlog_spark.client.bookies import REFRESH_SECONDS
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import (
    ConfigurationError,
    MetadataFormatError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from ledgerlog_spark.wire.topology import Topology
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.metadata_worlds import memory_tree

if TYPE_CHECKING:
    from ledgerlog_spark.client.client import LedgerClient

NO_BOOKIES = pytest.mark.world(bookies=0)
THREE = Quorum(3, 3, 2)


async def created(client: LedgerClient, **changes: Any) -> tuple[str, ...]:
    handle = await client.create_ledger(**changes)
    return handle.metadata.last_fragment.ensemble


@NO_BOOKIES
async def test_copies_are_on_different_hosts_and_racks(world: ClientWorld) -> None:
    """AUTORECOVERY.md#Z1, AUTORECOVERY.md#Z3."""
    for number in range(6):
        await world.join(f"b{number}", host=f"h{number % 3}", rack="x" if number < 5 else "y")
    client = world.client()
    for _ in range(20):
        ensemble = await created(client)
        assert len({int(name[1:]) % 3 for name in ensemble}) == 3
        assert "b5" in ensemble, "only b5 is in another rack"


@NO_BOOKIES
async def test_a_ledger_that_cannot_be_placed_is_refused_with_figures(world: ClientWorld) -> None:
    for number in range(4):
        await world.join(f"b{number}", host=f"h{number % 2}", rack="x", region="east")
    client = world.client()
    with pytest.raises(NotEnoughBookiesError, match="but the hosts of the 4 writable") as caught:
        await client.create_ledger()
    assert (caught.value.missing, caught.value.wanted, caught.value.available) == ("hosts", 3, 2)
    assert caught.value.retriable
    assert len(await created(client, ensemble_size=2, write_quorum=2)) == 2
    loose = world.client(placement=PlacementPolicy(allow_same_host=True))
    assert len(await created(loose)) == 3
    for rule, figures in (("racks", (2, 1)), ("regions", (2, 1))):
        enforced = PlacementPolicy(allow_same_host=True, **{f"enforce_{rule}": True})
        strict = world.client(placement=enforced)
        with pytest.raises(NotEnoughBookiesError, match=f"needs 2 {rule} for") as caught:
            await strict.create_ledger()
        assert (caught.value.missing, caught.value.wanted, caught.value.available) == (
            rule,
            *figures,
        )


@NO_BOOKIES
async def test_a_bookie_without_free_bytes_is_the_last_choice(world: ClientWorld) -> None:
    """AUTORECOVERY.md#Z5."""
    for number, free in enumerate((0, 5, 5, 5)):
        await world.join(f"b{number}", free_bytes=free)
    client = world.client()
    for _ in range(20):
        assert "b0" not in await created(client)
    await world.kill("b1")
    await asyncio.sleep(1)
    assert "b0" in await created(client)
    strict = world.client(placement=PlacementPolicy(enforce_free_bytes=True))
    with pytest.raises(NotEnoughBookiesError, match="that have free bytes") as caught:
        await strict.create_ledger()
    assert (caught.value.missing, caught.value.available) == ("free bytes", 2)


@pytest.mark.world(bookies=6)
async def test_a_bookie_that_failed_three_writers_is_in_quarantine(world: ClientWorld) -> None:
    """AUTORECOVERY.md#Z6."""
    client = world.client(add_timeout_ms=100)
    bad = world.names[0]
    del world.storages[bad]  # it stays registered
    failures = 0
    while failures < 3:
        handle = await client.create_ledger()
        if bad in handle.metadata.last_fragment.ensemble:
            failures += 1
            await handle.append(b"x")
            await asyncio.sleep(1)
            assert bad not in handle.metadata.last_fragment.ensemble
    for _ in range(30):
        assert bad not in await created(client)
    other = Counter([bad in await created(world.client()) for _ in range(30)])
    assert other[True] > 0, "another client has seen no failure"
    await asyncio.sleep(300)
    again = Counter([bad in await created(client) for _ in range(30)])
    assert again[True] > 0, "the quarantine ends after five minutes"


@pytest.mark.world(bookies=4)
async def test_the_topology_replaces_places_and_policy_within_a_minute(world: ClientWorld) -> None:
    """AUTORECOVERY.md#Z2."""
    client, stores = world.client_and_stores()
    await created(client)
    one_host = {name: {"host": "h"} for name in world.names}
    await stores.topologies.write(Topology(one_host), None)
    await asyncio.sleep(REFRESH_SECONDS)
    with pytest.raises(NotEnoughBookiesError, match="--hosts same"):
        await client.create_ledger()
    found = await stores.topologies.read()
    assert found is not None
    await stores.topologies.write(Topology(one_host, {"allow_same_host": True}), found.version)
    await asyncio.sleep(REFRESH_SECONDS)
    assert len(await created(client)) == 3


@pytest.mark.world(bookies=4)
async def test_a_topology_that_cannot_be_read_changes_nothing(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = world.client()
    await created(client)

    async def broken() -> None:
        raise MetadataFormatError("damaged")

    assert client.services.topologies is not None
    monkeypatch.setattr(type(client.services.topologies), "read", lambda _: broken())
    await asyncio.sleep(REFRESH_SECONDS)
    assert len(await created(client)) == 3
    assert "stay in use: damaged" in caplog.text


@pytest.mark.world(bookies=4)
async def test_registrations_are_read_once_a_minute(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.client()
    registration = client.services.registration
    read: Counter[str] = Counter()
    info = registration.info

    async def counted(name: str) -> Any:
        read[name] += 1
        return await info(name)

    monkeypatch.setattr(registration, "info", counted)
    await asyncio.gather(*(created(client) for _ in range(50)))
    assert read == Counter(world.names)
    await world.join("late")
    await asyncio.sleep(1)
    await created(client)
    assert read == Counter([*world.names, "late"])
    await asyncio.sleep(REFRESH_SECONDS)
    await created(client)
    assert read == Counter(2 * [*world.names, "late"])


@pytest.mark.world(bookies=3)
async def test_places_of_bookies_that_are_gone_are_kept_up_to_a_bound(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "GONE_MAX", 2)
    client = world.client()
    for number in range(6):
        await world.join(f"old-{number}", host=f"h{number}")
        await asyncio.sleep(1)
        await created(client)
        await world.kill(f"old-{number}")
        await asyncio.sleep(1)
    known = (await client.services.bookies.known(())).places
    assert known["old-0"].host == "h0"
    await asyncio.sleep(REFRESH_SECONDS)
    await created(client)
    known = (await client.services.bookies.known(())).places
    assert set(known) == {*world.names, "old-4", "old-5"}


@NO_BOOKIES
async def test_a_broken_rule_is_logged_once(
    world: ClientWorld, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        await world.join(f"b{number}", rack="x")
    client = world.client()
    for _ in range(3):
        await created(client)
    assert len(re.findall("not placed as the policy requires: 1 of 2 racks", caplog.text)) == 1


@NO_BOOKIES
async def test_a_replacement_keeps_the_rules_too(world: ClientWorld) -> None:
    """PROTOCOL.md#B5: the host of a bookie that is replaced is free again."""
    for number in range(3):
        await world.join(f"b{number}", host=f"h{number}")
    client = world.client(add_timeout_ms=100)
    handle = await client.create_ledger()
    await handle.append(b"x")
    await world.join("same-host", host="h1")
    await world.join("taken-host", host="h0")
    del world.storages["b1"]
    await handle.append(b"y")
    await handle.flush()
    assert "same-host" in handle.metadata.last_fragment.ensemble
    assert "taken-host" not in handle.metadata.last_fragment.ensemble


@NO_BOOKIES
async def test_adherence_of_a_ledger_counts_places_only(world: ClientWorld) -> None:
    for number in range(3):
        await world.join(f"b{number}", rack="x", free_bytes=0)
    client = world.client()
    handle = await client.create_ledger()
    (found,) = await client.services.bookies.adherence_of(handle.metadata)
    assert (found.broken, found.misplaced) == (("racks",), ("racks",))


def test_a_policy_is_a_setting_of_a_client() -> None:
    wrong: Any = "racks"
    with pytest.raises(ConfigurationError, match="placement must be of type PlacementPolicy"):
        ClientSettings(placement=wrong)


@pytest.mark.world(bookies=3)
async def test_a_store_that_is_away_while_places_are_read_is_an_error(world: ClientWorld) -> None:
    client, stores = world.client_and_stores(metadata_timeout_ms=500)
    memory_tree(stores).disconnect()
    with pytest.raises(MetadataUnavailableError):
        await client.create_ledger()
    memory_tree(stores).connect()
    assert len(await created(client)) == 3
