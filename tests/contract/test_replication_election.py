"""The promises of the `AuditorElection` port, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest

from ledgerlog_spark.errors import MetadataFormatError
from ledgerlog_spark.metadata.replication.election import TreeAuditorVote
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.tree import NodeKind
from ledgerlog_spark.waits import within
from tests.fixtures.metadata_worlds import PATIENCE_SECONDS, World

Two = tuple[MetadataStores, MetadataStores]


async def happens(event: asyncio.Event) -> None:
    await within(event.wait(), PATIENCE_SECONDS)


async def votes(stores: MetadataStores) -> list[str]:
    await stores.tree.sync()
    return await stores.tree.children(f"{stores.root}/underreplication/auditorelection")


async def test_the_first_candidate_leads_and_the_next_one_follows(two: Two) -> None:
    first, second = two
    assert await first.auditor_election.current() is None
    a = await first.auditor_election.join("a:3181")
    await happens(a.elected)
    b = await second.auditor_election.join("b:3181")
    assert await second.auditor_election.current() == "a:3181"
    assert (a.may_publish, b.may_publish, b.elected.is_set()) == (True, False, False)
    await a.leave()
    await happens(b.elected)
    assert (a.may_publish, b.may_publish) == (False, True)
    assert a.lost.is_set()
    assert await second.auditor_election.current() == "b:3181"
    await b.leave()
    await b.leave()
    assert await votes(first) == []


async def test_the_nodes_are_apaches(two: Two) -> None:
    first, _ = two
    candidacy = await first.auditor_election.join("a:3181")
    await happens(candidacy.elected)
    election = f"{first.root}/underreplication/auditorelection"
    [name] = await votes(first)
    assert name == "V_0000000000"
    assert (await first.tree.get(f"{election}/{name}")).value == b'bookieId: "a:3181"\n'
    assert (await first.tree.get(election)).value == b'bookieId: "a:3181"\n'
    stat = await first.tree.stat(f"{election}/{name}")
    assert stat is not None
    assert stat.owner == first.tree.session_id
    await candidacy.leave()


async def test_a_new_session_steps_down_and_its_successor_leads(world: World, two: Two) -> None:
    first, second = two
    a = await first.auditor_election.join("a")
    await happens(a.elected)
    b = await second.auditor_election.join("b")
    await world.expire(first.tree)
    assert not a.may_publish
    await happens(a.lost)
    await happens(b.elected)
    again = await first.auditor_election.join("a")
    assert not again.elected.is_set()
    assert await first.auditor_election.current() == "b"
    for each in (a, b, again):
        await each.leave()


async def test_a_vote_that_is_deleted_is_lost(two: Two) -> None:
    first, second = two
    a = await first.auditor_election.join("a")
    await happens(a.elected)
    [name] = await votes(second)
    await second.tree.delete(f"{second.root}/underreplication/auditorelection/{name}", None)
    await happens(a.lost)
    assert not a.may_publish
    await a.leave()


async def test_the_middle_candidate_leaves_and_the_last_one_waits_for_the_first(
    world: World, two: Two
) -> None:
    first, second = two
    third = MetadataStores.on(await world.session(), world.root)
    a, b, c = [
        await stores.auditor_election.join(name)
        for stores, name in ((first, "a"), (second, "b"), (third, "c"))
    ]
    await happens(a.elected)
    await b.leave()
    assert await third.auditor_election.current() == "a"
    await a.leave()
    await happens(c.elected)
    await c.leave()
    await third.close()


async def test_a_vote_with_a_lost_answer_is_found(world: World, two: Two) -> None:
    first, second = two
    for lose in (world.lose_next_reply, world.lose_next_request):
        election = first.auditor_election
        candidacy = await election.join("warm")
        await candidacy.leave()
        lose(first.tree)
        candidacy = await first.auditor_election.join("a")
        await happens(candidacy.elected)
        assert len(await votes(second)) == 1
        await candidacy.leave()


async def test_an_own_vote_that_was_forgotten_is_no_obstacle(two: Two) -> None:
    first, _ = two
    election = f"{first.root}/underreplication/auditorelection"
    await first.tree.create(
        f"{election}/V_",
        b'bookieId: "a"\n',
        kind=NodeKind.EPHEMERAL_SEQUENTIAL,
        make_parents=True,
    )
    candidacy = await first.auditor_election.join("a")
    await happens(candidacy.elected)
    assert len(await votes(first)) == 1
    await candidacy.leave()


async def test_a_vote_that_arrives_late_before_its_repetition_is_deleted(two: Two) -> None:
    first, _ = two
    election = f"{first.root}/underreplication/auditorelection"
    names = []
    for _ in range(2):
        created = await first.tree.create(
            f"{election}/V_",
            b'bookieId: "a"\n',
            kind=NodeKind.EPHEMERAL_SEQUENTIAL,
            make_parents=True,
        )
        names.append(created.path.rpartition("/")[2])
    session_id = first.tree.session_id
    candidacy = TreeAuditorVote(first.tree, election, names[1], "a", session_id)
    candidacy.begin()
    await happens(candidacy.elected)
    assert await votes(first) == names[1:]
    await candidacy.leave()


async def test_names_that_are_no_votes_are_omitted(two: Two) -> None:
    first, _ = two
    election = f"{first.root}/underreplication/auditorelection"
    for name in ("V_", "V_1", "A_0000000000", "V_000000000x"):
        await first.tree.create(f"{election}/{name}", b"\xff", make_parents=True)
    candidacy = await first.auditor_election.join("a")
    await happens(candidacy.elected)
    await candidacy.leave()
    assert await first.auditor_election.current() is None


async def test_a_damaged_vote_is_a_clear_error(two: Two) -> None:
    first, _ = two
    election = f"{first.root}/underreplication/auditorelection"
    await first.tree.create(f"{election}/V_0000000000", b"\xff", make_parents=True)
    with pytest.raises(MetadataFormatError, match="cannot be read"):
        await first.auditor_election.current()
