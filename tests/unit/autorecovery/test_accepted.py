"""Entries that an operator gave up count as listed by every bookie (AUTORECOVERY.md#X13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.autorecovery import accepted
from ledgerlog_spark.autorecovery.accepted import AcceptedEntries
from ledgerlog_spark.autorecovery.audit.copy_requests import CopyRequests
from ledgerlog_spark.autorecovery.replicate.bookie_requests import BookieRequests, CopyCounters
from ledgerlog_spark.errors import MetadataFormatError
from ledgerlog_spark.model import BookieInfo, Code, Fragment, LedgerMetadata, Quorum, Version
from ledgerlog_spark.protocol.autorecovery.audit import messages as audit
from ledgerlog_spark.protocol.autorecovery.replicate import messages as replicate
from ledgerlog_spark.protocol.autorecovery.replicate.pace import CopyPace
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.wire.ledger_loss import AcceptedRanges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledgerlog_spark.metadata.stores import MetadataStores

pytestmark = pytest.mark.virtual_time


class Lists:
    """A transport that lists the entries 0 to 3 and 6 to 9 of each ledger."""

    code = Code.OK

    def list_entries(
        self,
        _bookie_id: str,
        _ledger_id: int,
        _timeout_ms: int,
        on_reply: Callable[[Code, Sequence[tuple[int, int]]], None],
    ) -> None:
        ranges = [(0, 3), (6, 9)] if self.code is Code.OK else []
        on_reply(self.code, ranges)


async def info_of(bookie_id: str) -> BookieInfo:
    return BookieInfo(bookie_id, "127.0.0.1", 1, 2)


async def worker_list(stores: MetadataStores, lists: Any, ledger_id: int) -> Any:
    """The list of a bookie, as a worker gets it."""
    entries = AcceptedEntries(stores.accepted_losses)
    requests = BookieRequests(lists, lists, info_of, CopyPace(0), CopyCounters(), 1_000, entries)
    return await requests._list(ledger_id, replicate.ListEntries("b1", request=1))


async def audit_list(stores: MetadataStores, lists: Any, ledger_id: int) -> Any:
    """The list of a bookie, as an auditor gets it."""
    requests = CopyRequests(lists, info_of, 1_000, AcceptedEntries(stores.accepted_losses))
    return await requests._list(audit.ListCopies(1, "b1", ledger_id))


async def give_up(stores: MetadataStores, ledger_id: int, *ranges: tuple[int, int]) -> None:
    await stores.accepted_losses.accept(ledger_id, AcceptedRanges(ranges, False, 0, "ops", "x"))


async def stores_in_memory() -> MetadataStores:
    stores = memory_metadata()
    await stores.initialize()
    return stores


@pytest.mark.parametrize("listed", [worker_list, audit_list])
async def test_a_list_has_the_entries_that_were_given_up(listed: Any) -> None:
    stores = await stores_in_memory()
    assert tuple((await listed(stores, Lists(), 7)).ranges) == ((0, 3), (6, 9))
    await give_up(stores, 7, (5, 5), (12, 13))
    assert (await listed(stores, Lists(), 7)).ranges == ((0, 3), (5, 9), (12, 13))
    await give_up(stores, 7, (4, 4))
    assert (await listed(stores, Lists(), 7)).ranges == ((0, 9), (12, 13))
    assert tuple((await listed(stores, Lists(), 8)).ranges) == ((0, 3), (6, 9))


@pytest.mark.parametrize("listed", [worker_list, audit_list])
async def test_a_bookie_without_the_ledger_lists_only_what_was_given_up(listed: Any) -> None:
    stores, lists = await stores_in_memory(), Lists()
    lists.code = Code.NO_LEDGER
    await give_up(stores, 7, (5, 5))
    assert (await listed(stores, lists, 7)).ranges == ((5, 5),)


async def test_a_bookie_without_an_answer_stays_without_a_list() -> None:
    stores, lists = await stores_in_memory(), Lists()
    lists.code = Code.TIMEOUT
    await give_up(stores, 7, (5, 5))
    assert (await worker_list(stores, lists, 7)).code is Code.TIMEOUT
    assert (await audit_list(stores, lists, 7)).outcome is audit.ListOutcome.UNKNOWN


async def test_a_damaged_acceptance_makes_the_list_unknown() -> None:
    stores = await stores_in_memory()
    await give_up(stores, 7, (5, 5))
    await stores.tree.set(f"{stores.root}-losses/@ledgers/7", b"x", None)
    with pytest.raises(MetadataFormatError):
        await AcceptedEntries(stores.accepted_losses).added_to(7, [])
    assert (await worker_list(stores, Lists(), 7)).code is Code.UNAVAILABLE
    assert (await audit_list(stores, Lists(), 7)).outcome is audit.ListOutcome.UNKNOWN


async def test_the_ledgers_with_losses_are_read_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores, now = await stores_in_memory(), [100.0]
    monkeypatch.setattr(f"{accepted.__name__}.time.monotonic", lambda: now[0])
    entries = AcceptedEntries(stores.accepted_losses)
    assert await entries.added_to(7, [(0, 1)]) == ((0, 1),)
    await give_up(stores, 7, (2, 2))
    now[0] += accepted.REFRESH_SECONDS - 1
    assert await entries.added_to(7, [(0, 1)]) == ((0, 1),)
    now[0] += 1
    assert await entries.added_to(7, [(0, 1)]) == ((0, 2),)


@pytest.mark.parametrize("code", [Code.NO_ENTRY, Code.DIGEST_MISMATCH])
async def test_the_digest_check_finds_nothing_in_entries_that_were_given_up(code: Code) -> None:
    stores = await stores_in_memory()
    await give_up(stores, 7, (5, 5))

    class Denies:
        def read_batch(self, *arguments: Any) -> None:
            arguments[-1](code, [])

    denies: Any = Denies()
    requests = CopyRequests(denies, info_of, 1_000, AcceptedEntries(stores.accepted_losses))
    metadata = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("b1",)),))
    record = audit.LedgerRecord(7, metadata, Version(1, 0))
    found = [await requests._verify(audit.VerifyCopies(1, "b1", record, (n,))) for n in (4, 5)]
    bad = [tuple(one.absent if code.is_absent else one.damaged) for one in found]
    assert (bad, [one.verified for one in found]) == ([(4,), ()], [4, 5])
    await stores.tree.set(f"{stores.root}-losses/@ledgers/7", b"x", None)
    assert (await requests._verify(audit.VerifyCopies(1, "b1", record, (5,)))).is_unknown
