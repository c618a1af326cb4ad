"""The check of the metadata of logs, on a whole simulated cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.metadata.logs.nodes import LogPaths
from ledgerlog_spark.protocol.log.seal import LOG_ID_KEY
from ledgerlog_spark.protocol.log.state.codec import decode_head, encode_head, encode_page
from ledgerlog_spark.protocol.log.state.pages import PageRequest
from ledgerlog_spark.protocol.log.state.records import (
    LogContent,
    LogHead,
    LogKind,
    OpenLedger,
    Paged,
    SchemaRecord,
)
from ledgerlog_spark.protocol.log.state.rows import ITEMS
from ledgerlog_spark.tools.findings import Severity
from ledgerlog_spark.tools.log_check import CheckedLog, LogListings
from tests.unit.log.log_world import SCHEMA, LogWorld, commit, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.metadata.stores import MetadataStores

MANY_COMMITS = 45


class Damaged:
    """A log whose nodes a test changes, as a defect or another program might."""

    def __init__(self, stores: MetadataStores, log: Log) -> None:
        self.stores, self.log = stores, log
        self.paths = LogPaths(stores.root)

    async def head(self) -> LogHead:
        return decode_head((await self.stores.tree.get(self.paths.head(self.log.log_id))).value)

    async def change_head(self, change: Callable[[LogHead], LogHead]) -> None:
        data = encode_head(change(await self.head()))
        await self.stores.tree.set(self.paths.head(self.log.log_id), data, None)

    async def page(self) -> str:
        """The path of the oldest page of items."""
        head = await self.head()
        ref = (*head.items.index, *head.items.pages)[0]
        return self.paths.page(self.log.log_id, ref.token, ref.number)

    async def check(self) -> CheckedLog:
        return await LogListings(self.stores).check("flights")


async def damaged(world: LogWorld, commits: int = 2) -> Damaged:
    client, stores = world.client_and_stores()
    log = await Logs(store=stores.logs, ledgers=client).create("flights")
    for number in range(commits):
        await commit(log, f"c{number}")
    return Damaged(stores, log)


async def only(log: Damaged) -> str:
    checked = await log.check()
    (found,) = checked.findings
    assert (found.severity, found.log) == (Severity.WRONG, "flights")
    assert found.advice
    return found.what


async def test_a_log_with_pages_is_sound(world: LogWorld) -> None:
    log = await damaged(world, MANY_COMMITS)
    checked = await log.check()
    assert checked.findings == []
    assert (checked.is_readable, checked.items, checked.ledgers) == (True, 90, 90)
    assert checked.pages > 0


async def test_a_log_stays_sound_when_rows_are_restored_and_truncated(
    world: LogWorld,
) -> None:
    log = await damaged(world, 3)
    await log.log.restore(2)
    assert (await log.check()).findings == []
    await log.log.truncate(60)
    assert (await log.check()).findings == []
    await commit(log.log, "x")
    checked = await log.check()
    assert (checked.findings, checked.is_readable) == ([], True)


async def test_a_leader_log_is_sound(world: LogWorld) -> None:
    client, stores = world.client_and_stores()
    logs = Logs(store=stores.logs, ledgers=client)
    log = await logs.create("flights", kind=LogKind.LEADER, content=LogContent.RECORDS)
    assert (await LogListings(stores).check("flights")).findings == []
    opened = await client.create_ledger(custom_metadata={LOG_ID_KEY: log.log_id.encode()})
    found = Damaged(stores, log)
    await found.change_head(lambda head: replace(head, open_ledgers=(OpenLedger(opened.id, 0, 1),)))
    assert (await found.check()).findings == []


async def test_an_unknown_log_is_no_finding(world: LogWorld) -> None:
    _, stores = world.client_and_stores()
    await stores.initialize()
    with pytest.raises(LogNotFoundError):
        await LogListings(stores).check("nothing")


async def test_a_head_that_is_missing_or_damaged_is_found(world: LogWorld) -> None:
    log = await damaged(world)
    path = log.paths.head(log.log.log_id)
    await log.stores.tree.set(path, b"not a head", None)
    assert "the head of the log cannot be decoded" in await only(log)
    await log.stores.tree.delete(path)
    assert "this id has no head" in await only(log)
    assert not (await log.check()).is_readable


async def test_a_finding_that_a_second_look_does_not_show_is_dropped(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write between two reads of one look can look like damage."""
    log = await damaged(world)
    listings, looks = LogListings(log.stores), 0
    read_head = listings._logs.read_head

    async def missing_at_first(log_id: str) -> Any:
        nonlocal looks
        looks += 1
        return None if looks == 1 else await read_head(log_id)

    monkeypatch.setattr(listings._logs, "read_head", missing_at_first)
    checked = await listings.check("flights")
    assert (checked.findings, looks) == ([], 2)


async def test_a_name_that_leads_to_another_log_is_found(world: LogWorld) -> None:
    log = await damaged(world)
    await log.change_head(lambda head: replace(head, name="others"))
    assert "leads to the head of log 'others'" in await only(log)
    await log.change_head(lambda head: replace(head, name="flights", deleted_ms=1))
    assert "which is deleted" in await only(log)


@pytest.mark.parametrize("data", [None, b"not a page"])
async def test_a_page_that_cannot_be_read_is_named(world: LogWorld, data: bytes | None) -> None:
    log = await damaged(world, MANY_COMMITS)
    path = await log.page()
    if data is None:
        await log.stores.tree.delete(path)
    else:
        await log.stores.tree.set(path, data, None)
    expected = "is missing" if data is None else "cannot be decoded"
    assert expected in await only(log)


async def test_a_page_with_other_records_is_found(world: LogWorld) -> None:
    log = await damaged(world, MANY_COMMITS)
    head = await log.head()
    ref = head.items.pages[0]
    (records,) = await log.stores.logs.read_pages(log.log.log_id, [PageRequest(ITEMS, ref)]) or ()
    path = await log.page()
    await log.stores.tree.set(path, encode_page(ITEMS, records[:-1]), None)
    assert f"and not {ref.count} records from" in await only(log)


CHANGES: dict[str, Callable[[LogHead], LogHead]] = {
    "a gap or an overlap": lambda head: _items(head, lambda items: (items[0], *items[2:])),
    "the list has the offsets 0 to 90, but the head has 0 to 120": lambda head: _items(
        head, lambda items: items[:-1]
    ),
    "the list is empty": lambda head: _items(head, lambda _: ()),
    "is outside of its range": lambda head: _items(
        head, lambda items: (replace(items[0], index_entry_id=99), *items[1:])
    ),
    "but its history has 2 of them": lambda head: replace(
        head, history=Paged(recent=head.history.recent[1:])
    ),
    "which are before the offsets of version 1": lambda head: replace(
        head,
        history=Paged(
            recent=(*head.history.recent[:-1], replace(head.history.recent[-1], end_offset=10))
        ),
    ),
    "rows have the schemas 0, which the log does not have": lambda head: replace(
        head, schemas=Paged(recent=(SchemaRecord(5, SCHEMA),))
    ),
}


def _items(head: LogHead, change: Callable[[Any], Any]) -> LogHead:
    return replace(head, items=Paged(recent=tuple(change(head.items.recent))))


@pytest.mark.parametrize("expected", CHANGES)
async def test_a_wrong_list_is_explained(world: LogWorld, expected: str) -> None:
    log = await damaged(world)
    await log.change_head(CHANGES[expected])
    assert any(expected in each.what for each in (await log.check()).findings)


async def test_ledgers_that_do_not_fit_their_items_are_named(world: LogWorld) -> None:
    log = await damaged(world)
    first, second, third, _ = (item.ledger_id for item in (await log.head()).items.recent)
    ledgers = log.stores.ledgers
    await ledgers.delete(first)
    for ledger_id, change in ((second, {"last_entry_id": 1}), (third, {"custom": {}})):
        found = await ledgers.load(ledger_id)
        await ledgers.write(ledger_id, replace(found.value, **change), found.version)
    checked = await log.check()
    assert [(each.ledger_id, each.severity) for each in checked.findings] == [
        (first, Severity.WRONG), (second, Severity.WRONG), (third, Severity.WRONG),
    ]  # fmt: skip
    assert "with 30 rows, but the metadata of this ledger is missing" in checked.findings[0].what
    assert "but the ledger is closed at entry 1" in checked.findings[1].what
    assert "which belongs to no log" in checked.findings[2].what


async def test_an_unclosed_ledger_in_the_list_of_a_leader_log_is_a_warning(
    world: LogWorld,
) -> None:
    client, stores = world.client_and_stores()
    logs = Logs(store=stores.logs, ledgers=client)
    rows = await logs.create("rows")
    await commit(rows, "x")
    (item, _) = (await Damaged(stores, rows).head()).items.recent
    log = await logs.create("flights", kind=LogKind.LEADER)
    opened = await client.create_ledger(custom_metadata={LOG_ID_KEY: log.log_id.encode()})
    listed = replace(item, ledger_id=opened.id, first_offset=0)
    found = Damaged(stores, log)
    await found.change_head(
        lambda head: replace(
            head, end_offset=30, items=Paged(recent=(replace(listed, schema_id=-1),))
        )
    )
    (warning,) = (await found.check()).findings
    assert warning.severity is Severity.WARNING
    assert f"ledgers seal {opened.id}" in warning.advice


async def test_ledgers_of_a_log_that_does_not_exist_are_found(world: LogWorld) -> None:
    log = await damaged(world)
    client, stores = world.client_and_stores()
    stranger = await client.create_ledger(custom_metadata={LOG_ID_KEY: b"f" * 32})
    plain = await client.create_ledger()
    unreadable = await client.create_ledger()
    await stores.tree.set(stores.ledgers.path(unreadable.id), b"x", None)
    listings = LogListings(stores)
    owners = await listings.owners(lambda _: None)
    assert owners.by_log["f" * 32] == {stranger.id}
    assert len(owners.by_log[log.log.log_id]) == 4
    assert owners.unreadable == 1
    assert plain.id not in {each for ids in owners.by_log.values() for each in ids}
    (found,) = await listings.strangers(owners)
    assert (found.severity, found.ledger_id) == (Severity.WARNING, stranger.id)


async def test_the_progress_of_a_pass_is_reported(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgerlog_spark.tools.log_check.PROGRESS_LEDGERS", 3)
    log = await damaged(world, 4)
    progress: list[int] = []
    owners = await LogListings(log.stores).owners(progress.append)
    assert progress == [3, 6]
    assert len(owners.by_log[log.log.log_id]) == 8


async def test_staged_ledgers_do_not_disturb(world: LogWorld) -> None:
    log = await damaged(world)
    job = await log.log.begin(schema=SCHEMA)
    await write(log.log, job, "staged")
    assert (await log.check()).findings == []
