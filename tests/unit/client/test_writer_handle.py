from __future__ import annotations

import asyncio
import gc
from typing import Any, NoReturn

import pytest

from ledgerlog_spark.client.append_queue import BACKLOGS_MAX
from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import (
    AddTimeoutError,
    EntryUnknownError,
    InternalError,
    LedgerClosedError,
    LedgerFencedError,
    LedgerLogError,
    LocalProtocolError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    QuorumError,
)
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerState, Quorum
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.retry import RetryPolicy
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.metadata_worlds import memory_tree
from tests.fixtures.records import of_this_thread


def hold_all(world: ClientWorld) -> None:
    world.transport.held.update(world.names)


def release_all(world: ClientWorld) -> None:
    for name in world.names:
        world.transport.release(name)


async def settled(*futures: asyncio.Future[Any]) -> list[object]:
    return await asyncio.gather(*futures, return_exceptions=True)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_appends_that_nobody_waits_for_are_refused_beyond_a_bound(world: ClientWorld) -> None:
    hold_all(world)
    client = world.client(
        backlog_entries_max=10, writer=WriterSettings(window=Window(entries_max=4))
    )
    ledger = await client.create_ledger()
    begun: list[asyncio.Future[Any]] = [ledger.append_async(b"x") for _ in range(1000)]
    begun.append(ledger.append_batch_async([b"x"] * 3))
    refused = [one for one in begun if one.done()]
    assert len(refused) == 1001 - 10 * BACKLOGS_MAX
    for one in refused:
        error = one.exception()
        assert isinstance(error, LocalProtocolError)
        assert error.definite
        assert "drain()" in str(error)
    release_all(world)
    await ledger.drain()
    kept = begun[: 10 * BACKLOGS_MAX]
    assert await asyncio.gather(*kept) == list(range(len(kept)))
    assert await ledger.append(b"later") == len(kept)


async def test_the_loss_of_an_ack_quorum_is_logged_once_and_named_in_the_error(
    world: ClientWorld, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = await world.client().create_ledger()
    assert await ledger.append(b"x") == 0
    for name in ("bookie-1", "bookie-2"):
        await world.kill(name)
    begun = ledger.append_async(b"x")
    await asyncio.sleep(60)
    assert not ledger.is_writable
    assert isinstance(begun.exception(), NotEnoughBookiesError)
    with pytest.raises(NotEnoughBookiesError, match="more bookies than the ensemble") as caught:
        await ledger.append(b"x")
    assert caught.value.definite
    assert "bookie-1: unavailable" in str(caught.value)
    (warning,) = [record.getMessage() for record in of_this_thread(caplog)]
    assert "continues without bookie-1 (unavailable) and bookie-2" in warning
    assert "(with an ensemble of 3, a replacement needs 4 bookies)" in warning


@pytest.mark.world(bookies=5)
async def test_bookies_that_are_all_busy_for_seconds_delay_appends_and_nothing_else(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    ensemble = ledger.metadata.last_fragment.ensemble
    for name in world.names:
        world.transport.refusing[name] = Code.BUSY
    appends = [ledger.append_async(b"x" * 1000) for _ in range(100)]
    await asyncio.sleep(8)
    assert not any(append.done() for append in appends)
    world.transport.refusing.clear()
    assert await asyncio.gather(*appends) == list(range(100))
    assert (await ledger.close()).last_fragment.ensemble == ensemble


async def test_a_ledger_is_opened_and_read_as_soon_as_its_bookies_are_less_busy(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append_batch([b"x"] * 10)
    await ledger.append(b"y")
    world.transport.refusing.update(dict.fromkeys(world.names, Code.BUSY))
    asyncio.get_running_loop().call_later(5, world.transport.refusing.clear)
    reader = await world.client().open_ledger(ledger.id)
    assert reader.last_add_confirmed == 9
    world.transport.refusing.update(dict.fromkeys(world.names, Code.BUSY))
    asyncio.get_running_loop().call_later(5, world.transport.refusing.clear)
    assert len([entry async for entry in reader.read()]) == 10
    world.transport.refusing.update(dict.fromkeys(world.names, Code.BUSY))
    with pytest.raises(EntryUnknownError) as caught:
        await world.client().open_ledger(ledger.id)
    assert caught.value.retriable


async def test_bookies_that_stay_busy_end_appends_with_an_error_that_says_so(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    for name in world.names:
        world.transport.refusing[name] = Code.BUSY
    with pytest.raises(QuorumError, match="too many requests") as caught:
        await ledger.append(b"x")
    assert not caught.value.definite
    assert not caught.value.retriable


async def test_appends_get_dense_ids_in_the_order_of_the_calls(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    assert ledger.last_add_confirmed == NO_ENTRY
    assert await ledger.append(b"zero") == 0
    futures = [ledger.append_async(b"%d" % number) for number in range(1, 50)]
    assert await ledger.append_batch([b"a", b"b"]) == range(50, 52)
    assert [await future for future in futures] == list(range(1, 50))
    assert await ledger.append_batch([]) == range(0)
    assert ledger.last_add_confirmed == 51
    assert ledger.length == 4 + sum(len(b"%d" % n) for n in range(1, 50)) + 2
    for name in world.names:
        assert world.entries_of(name, ledger.id) == list(range(52))


async def test_what_is_appended_in_one_turn_of_the_loop_travels_in_one_run(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    await asyncio.gather(*(ledger.append_async(b"x") for _ in range(100)))
    assert world.runs_added() == [1, 1, 1]


async def test_a_lone_append_does_not_linger(world: ClientWorld) -> None:
    loop = asyncio.get_running_loop()
    ledger = await world.client(linger_ms=10_000).create_ledger()
    begun = loop.time()
    await ledger.append(b"x")
    assert loop.time() == begun


async def test_small_appends_wait_for_company_while_runs_are_out_and_no_longer_than_the_linger(
    world: ClientWorld,
) -> None:
    ledger = await world.client(linger_ms=40, runs_in_flight_min=1).create_ledger()
    hold_all(world)
    first = ledger.append_async(b"first")
    await turns()
    later = [ledger.append_async(b"later") for _ in range(10)]
    await turns()
    assert world.runs_added() == [1, 1, 1]
    await asyncio.sleep(0.05)
    assert world.runs_added() == [2, 2, 2]
    release_all(world)
    assert await asyncio.gather(first, *later) == list(range(11))


async def test_an_append_is_acknowledged_by_two_of_three_bookies(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    hold_all(world)
    future = ledger.append_async(b"x")
    await turns()
    world.transport.release("bookie-0")
    await turns()
    assert not future.done()
    world.transport.release("bookie-1")
    assert await future == 0


@pytest.mark.world(
    settings=ClientSettings(
        add_timeout_ms=60000,
        writer=WriterSettings(window=Window(entries_max=8, size_bytes_max=1 << 20)),
    )
)
async def test_the_window_counts_what_the_slowest_bookie_did_not_answer(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    world.transport.held.add("bookie-2")
    await ledger.append_batch([b"x"] * 8)
    waiting = ledger.append_async(b"y")
    await turns()
    assert not waiting.done()
    assert world.entries_of("bookie-0", ledger.id) == list(range(8))
    world.transport.release("bookie-2")
    assert await waiting == 8


@pytest.mark.world(
    settings=ClientSettings(
        backlog_entries_max=10, writer=WriterSettings(window=Window(entries_max=1))
    )
)
async def test_drain_waits_until_the_backlog_is_small(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    hold_all(world)
    futures = [ledger.append_async(b"x")]
    await turns()
    futures += [ledger.append_async(b"x") for _ in range(30)]
    drained = asyncio.ensure_future(ledger.drain())
    await turns()
    assert not drained.done()
    release_all(world)
    await drained
    assert await asyncio.gather(*futures) == list(range(31))


@pytest.mark.world(
    settings=ClientSettings(
        backlog_entries_max=10, writer=WriterSettings(window=Window(entries_max=1))
    )
)
async def test_who_gives_up_waiting_for_room_or_for_the_end_leaves_nothing_behind(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    hold_all(world)
    futures = [ledger.append_async(b"x")]
    await turns()
    futures += [ledger.append_async(b"x") for _ in range(30)]
    for wait in (ledger.drain, ledger.flush):
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wait(), 0.001)
    assert (len(ledger.queue._room), len(ledger.queue._idle)) == (0, 0)
    release_all(world)
    await ledger.flush()
    assert await asyncio.gather(*futures) == list(range(31))


async def test_a_cancelled_append_keeps_its_place_and_the_others_complete(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    hold_all(world)
    futures = [ledger.append_async(b"%d" % number) for number in range(3)]
    futures[1].cancel()
    release_all(world)
    assert [await futures[0], await futures[2]] == [0, 2]
    assert await ledger.append(b"next") == 3


@pytest.mark.world(bookies=4)
async def test_a_failed_bookie_is_replaced_and_no_append_notices(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append(b"before")
    (failed,) = ledger.metadata.last_fragment.ensemble[:1]
    await world.kill(failed)
    assert await ledger.append_batch([b"x"] * 5) == range(1, 6)
    metadata = await ledger.close()
    assert [fragment.first_entry_id for fragment in metadata.fragments] == [0, 1]
    assert failed not in metadata.last_fragment.ensemble


@pytest.mark.world(bookies=4)
async def test_a_silent_bookie_is_replaced_when_its_deadline_passes(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    silent = ledger.metadata.last_fragment.ensemble[2]
    world.transport.silent.add(silent)
    assert await ledger.append(b"x") == 0
    await asyncio.sleep(6)
    assert await ledger.append(b"y") == 1
    assert silent not in (await ledger.close()).last_fragment.ensemble


async def test_a_fenced_writer_fails_what_is_pending_as_unknown_and_what_follows_as_definite(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append(b"acknowledged")
    sealed = await world.client().seal(ledger.id)
    assert (sealed.last_entry_id, sealed.state) == (0, LedgerState.CLOSED)
    pending, batch = ledger.append_async(b"late"), ledger.append_batch_async([b"l", b"m"])
    for error in await settled(pending, batch):
        assert isinstance(error, LedgerFencedError)
        assert not error.definite
        assert not error.retriable
        assert error.last_add_confirmed == 0
    with pytest.raises(LedgerFencedError, match="nothing was sent") as refused:
        await ledger.append(b"later")
    assert refused.value.definite
    assert not ledger.is_writable
    with pytest.raises(LedgerFencedError):
        await ledger.close()


@pytest.mark.world(settings=ClientSettings(writer=WriterSettings(window=Window(entries_max=1))))
async def test_a_batch_of_which_the_first_part_was_sent_did_not_fail_for_certain(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append(b"acknowledged")
    await world.client().seal(ledger.id)
    cut = ledger.append_batch_async([bytes(600_000)] * 3)
    behind = ledger.append_async(bytes(900_000))
    ledger.send_now()
    assert ledger.entries_pending == 4
    errors = await settled(cut, behind)
    assert all(isinstance(error, LedgerFencedError) for error in errors), errors
    assert [getattr(error, "definite", None) for error in errors] == [False, True]


@pytest.mark.world(settings=ClientSettings(writer=WriterSettings(add_quorum_timeout_ms=8000)))
async def test_without_a_quorum_the_append_is_unknown_and_close_keeps_what_was_confirmed(
    world: ClientWorld,
) -> None:
    ledger = await world.client(add_timeout_ms=600_000).create_ledger()
    await ledger.append(b"safe")
    world.transport.silent.update(world.names)
    with pytest.raises(AddTimeoutError) as failed:
        await ledger.append(b"lost")
    assert not failed.value.definite
    assert (await ledger.close()).last_entry_id == 0


async def test_a_failure_between_two_appends_is_reported_once(world: ClientWorld) -> None:
    failures: list[LedgerLogError] = []
    client = world.client()
    ledger = await client.create_registered_ledger(
        client.services.ledgers.create,
        LedgerSpec(Quorum(3, 3, 2), changes_ensemble=False),
        on_failed=failures.append,
    )
    world.transport.silent.add(ledger.metadata.last_fragment.ensemble[0])
    assert await ledger.append(b"acknowledged by the others") == 0
    assert not failures
    await asyncio.sleep(60)
    (failure,) = failures
    assert isinstance(failure, QuorumError)
    with pytest.raises(QuorumError):
        await ledger.append(b"later")
    assert (await ledger.close()).last_entry_id == 0
    assert len(failures) == 1


@pytest.mark.world(
    settings=ClientSettings(writer=WriterSettings(replacement=RetryPolicy(attempts_max=2)))
)
async def test_when_failed_bookies_cannot_be_replaced_the_append_names_how_many_are_left(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    for name in world.names[:2]:
        await world.kill(name)
    with pytest.raises(NotEnoughBookiesError) as failed:
        await ledger.append(b"x")
    assert (failed.value.wanted, failed.value.available) == (3, 1)
    assert not failed.value.definite


async def test_close_waits_for_what_was_appended_before_and_refuses_what_comes_after(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    hold_all(world)
    futures = [ledger.append_async(b"x") for _ in range(10)]
    closing = asyncio.ensure_future(ledger.close())
    await turns()
    with pytest.raises(LedgerClosedError) as refused:
        await ledger.append(b"too late")
    assert refused.value.definite
    assert not closing.done()
    release_all(world)
    metadata = await closing
    assert (metadata.last_entry_id, metadata.length, metadata.is_closed) == (9, 10, True)
    assert await asyncio.gather(*futures) == list(range(10))
    assert await ledger.close() == metadata


async def test_closing_the_client_fails_pending_appends_as_unknown_and_leaves_the_ledger_open(
    world: ClientWorld,
) -> None:
    client = world.client()
    ledger = await client.create_ledger()
    hold_all(world)
    pending = ledger.append_async(b"x")
    await turns()
    await client.aclose()
    (error,) = await settled(pending)
    assert isinstance(error, LedgerClosedError)
    assert not error.definite
    assert (await world.client().ledger_metadata(ledger.id)).state is LedgerState.OPEN
    with pytest.raises(LedgerClosedError) as raised:
        await ledger.close()
    assert raised.value.definite


async def test_a_close_that_was_written_is_not_denied_when_the_client_is_closed_before_the_answer(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stores = world.client_and_stores()
    ledger = await client.create_ledger()
    await ledger.append(b"x")
    write = stores.ledgers.write

    async def answered_late(*args: Any, **kwargs: Any) -> Any:
        answer = await write(*args, **kwargs)
        await asyncio.sleep(3)
        return answer

    monkeypatch.setattr(stores.ledgers, "write", answered_late)
    closing = asyncio.ensure_future(ledger.close())
    await asyncio.sleep(0.5)
    await client.aclose()
    for error in (
        *await settled(closing),
        *await settled(asyncio.ensure_future(ledger.close())),
    ):
        assert isinstance(error, LedgerClosedError)
        assert not error.definite
    assert (await world.client().ledger_metadata(ledger.id)).is_closed


async def test_a_close_that_waited_for_appends_when_the_client_was_closed_did_not_happen(
    world: ClientWorld,
) -> None:
    client = world.client()
    ledger = await client.create_ledger()
    hold_all(world)
    pending = ledger.append_async(b"x")
    closing = asyncio.ensure_future(ledger.close())
    await turns()
    await client.aclose()
    _, error = await settled(pending, closing)
    assert isinstance(error, LedgerClosedError)
    assert error.definite
    assert (await world.client().ledger_metadata(ledger.id)).state is LedgerState.OPEN


async def test_close_nobody_waits_for_any_more_is_no_unhandled_error(world: ClientWorld) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
    client, stores = world.client_and_stores()
    ledger = await client.create_ledger()
    memory_tree(stores).disconnect()
    closing = asyncio.ensure_future(ledger.close())
    await turns()
    closing.cancel()
    await settled(closing)
    await client.aclose()
    await turns()
    del ledger, closing
    gc.collect()
    assert not reported


@pytest.mark.parametrize(
    ("is_silent", "seconds"), [(False, (29, 30.1)), (True, (30, 30.1))], ids=["refuses", "silent"]
)
async def test_close_gives_up_after_a_bounded_time_and_can_be_called_again(
    world: ClientWorld,
    is_silent: bool,
    seconds: tuple[float, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_answer(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    client, stores = world.client_and_stores()
    tree = memory_tree(stores)
    ledger = await client.create_ledger()
    await ledger.append(b"x")
    loop = asyncio.get_running_loop()
    began = loop.time()
    with monkeypatch.context() as patch:
        if is_silent:
            for request in ("_write", "sync"):
                patch.setattr(tree, request, no_answer)
        else:
            tree.disconnect()
        with pytest.raises(MetadataUnavailableError) as caught:
            await ledger.close()
    assert caught.value.retriable
    assert seconds[0] <= loop.time() - began <= seconds[1]
    tree.connect()
    assert (await ledger.close()).last_entry_id == 0


async def test_a_close_that_took_too_long_goes_on_and_its_outcome_is_there_for_the_next(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stores = world.client_and_stores()
    ledger = await client.create_ledger()
    await ledger.append(b"x")

    async def no_answer(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(memory_tree(stores), "_write", no_answer)
        with pytest.raises(MetadataUnavailableError) as caught:
            await ledger.close()
        assert (caught.value.definite, caught.value.retriable) == (False, True)
    await asyncio.sleep(60)
    assert (await world.client().open_ledger(ledger.id)).is_closed
    assert (await ledger.close()).last_entry_id == 0


async def test_a_bad_payload_changes_nothing(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    for bad in ("text", bytes(6 << 20)):
        with pytest.raises(LocalProtocolError):
            await ledger.append(bad)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError):
        await ledger.append_batch([b"good", "bad"])  # type: ignore[list-item]
    assert await ledger.append(b"x") == 0


async def test_a_bug_in_the_machine_fails_the_handle_and_nothing_else(world: ClientWorld) -> None:
    client = world.client()
    broken, other = await client.create_ledger(), await client.create_ledger()
    hold_all(world)
    pending = broken.append_async(b"x")
    await turns()
    break_machine(broken)
    release_all(world)
    (error,) = await settled(pending)
    assert isinstance(error, InternalError)
    assert any("AddReplied" in event for event in error.events)
    assert not error.definite
    with pytest.raises(InternalError) as refused:
        await broken.append(b"y")
    assert refused.value.definite, "nothing was sent"
    with pytest.raises(InternalError):
        await broken.close()
    assert await other.append(b"z") == 0


def break_machine(ledger: WriteHandle) -> None:
    ledger._writer._pipeline._unconfirmed.clear()
    ledger._writer._pipeline.take_reply = _fail


def _fail(reply: object) -> NoReturn:
    raise AssertionError("an impossible state")


@pytest.mark.parametrize("code", [Code.UNAUTHORIZED, Code.FENCED])
async def test_one_fatal_answer_ends_the_writer_although_the_others_store_the_entry(
    world: ClientWorld, code: Code
) -> None:
    ledger = await world.client().create_ledger()
    world.transport.held.update(("bookie-0", "bookie-2"))
    world.transport.refusing["bookie-1"] = code
    (error,) = await settled(ledger.append_async(b"x"))
    assert not getattr(error, "definite", True)
    release_all(world)
    await turns()
    assert ledger.last_add_confirmed == NO_ENTRY
