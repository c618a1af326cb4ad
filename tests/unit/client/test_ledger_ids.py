"""A ledger id is used once: the store issues ids, and only the client that drew an id uses it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.creation import DRAWN_MAX, DrawnIds, LedgerSpec
from ledgerlog_spark.errors import LedgerLogError, LocalProtocolError
from ledgerlog_spark.log.clients import BlockingLogClient, LogClient
from ledgerlog_spark.model import Quorum
from tests.fixtures.client_world import ClientWorld

QUORUM = Quorum(3, 3, 2)


@pytest.mark.parametrize("client", [LedgerClient, LogClient, BlockingClient, BlockingLogClient])
def test_no_client_lets_its_user_choose_the_id_of_a_new_ledger(client: type) -> None:
    parameters = inspect.signature(client.create_ledger).parameters  # type: ignore[attr-defined]
    assert not [name for name in parameters if "id" in name.split("_") or name == "create"]


async def test_drawn_id_makes_one_ledger_also_after_that_was_deleted(world: ClientWorld) -> None:
    client, other = world.client(), world.client()
    drawn = await client.new_ledger_ids(3)
    create = client.services.ledgers.create
    made: Any = await client.create_registered_ledger(
        create, LedgerSpec(QUORUM), ledger_id=drawn[1]
    )
    assert made.id == drawn[1]
    await made.append(b"first life")
    await made.close()
    await client.delete_ledger(made.id)
    for one, ledger_id in (
        (client, drawn[1]),
        (client, drawn[-1] + 1),
        (client, -1),
        (other, drawn[0]),
    ):
        with pytest.raises(LocalProtocolError, match="not returned by new_ledger_ids"):
            await one.create_registered_ledger(create, LedgerSpec(QUORUM), ledger_id=ledger_id)
    again = await client.create_registered_ledger(create, LedgerSpec(QUORUM))
    assert again.id > drawn[-1]


async def test_id_whose_ledger_could_not_be_made_is_used_up(world: ClientWorld) -> None:
    client = world.client()
    (ledger_id,) = await client.new_ledger_ids(1)

    async def fails(*_: Any) -> Any:
        raise LedgerLogError("the producer moved")

    with pytest.raises(LedgerLogError, match="the producer moved"):
        await client.create_registered_ledger(fails, LedgerSpec(QUORUM), ledger_id=ledger_id)
    with pytest.raises(LocalProtocolError):
        await client.create_registered_ledger(fails, LedgerSpec(QUORUM), ledger_id=ledger_id)


def test_ids_that_nobody_uses_are_given_up_oldest_first() -> None:
    drawn = DrawnIds()
    for first in range(0, 3 * DRAWN_MAX, 64):
        drawn.add(range(first, first + 64))
    assert len(drawn) == DRAWN_MAX
    with pytest.raises(LocalProtocolError):
        drawn.use(2 * DRAWN_MAX - 1)
    assert drawn.use(2 * DRAWN_MAX) == 2 * DRAWN_MAX
