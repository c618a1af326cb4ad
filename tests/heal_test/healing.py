"""Waits until the records and queues show that a cluster is whole, and reads every copy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ledgerlog_spark.metadata.replication.ports import Walk, WalkPosition
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.model import LedgerMetadata, Versioned
from tests.fixtures.patience import until
from tests.fixtures.replicas import Copies
from tests.kill_test.payload import payload

if TYPE_CHECKING:
    from tests.fixtures.bookie_process import BookieProcess

T = TypeVar("T")

HEALED_SECONDS_MAX = 900.0
COPIES_SECONDS_MAX = 600.0
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Found:
    """The records and the queues of a cluster at one time.

    Attributes:
        ledgers: The metadata of each ledger.
        marks: The ledgers in the queue of lost bookies.
        holes: The ledgers in the queue of holes.
        unreadable: The ledgers that are reported as unreadable.
    """

    ledgers: Mapping[int, LedgerMetadata]
    marks: frozenset[int]
    holes: frozenset[int]
    unreadable: frozenset[int]

    def naming(self, names: Collection[str]) -> frozenset[int]:
        """The ledgers of which a fragment names one of these bookies."""
        return frozenset(
            ledger_id
            for ledger_id, metadata in self.ledgers.items()
            if any(not set(names).isdisjoint(one.ensemble) for one in metadata.fragments)
        )

    def only_on(self, names: Collection[str]) -> frozenset[int]:
        """The ledgers with a fragment that names no other bookie."""
        return frozenset(
            ledger_id
            for ledger_id, metadata in self.ledgers.items()
            if any(set(one.ensemble) <= set(names) for one in metadata.fragments)
        )


def is_whole(found: Found, lost: Collection[str], but: Collection[int] = ()) -> bool:
    """Whether no record names a lost bookie, and no queue has a ledger, except `but`."""
    return found.naming(lost) | found.marks | found.holes <= set(but)


class Records:
    """The metadata of a cluster, read with a session of its own."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def found(self) -> Found:
        """The present records and queues."""
        return self.read(found_in)

    def auditor(self) -> str | None:
        """The elected auditor."""
        return self.read(lambda stores: stores.auditor_election.current())

    def writable(self) -> Sequence[str]:
        """The bookies that are registered as writable."""
        return self.read(lambda stores: stores.registration.writable())

    def set_no_delay(self) -> None:
        """Mark the ledgers of one lost bookie without a delay."""
        self.read(lambda stores: stores.recovery_switch.set_lost_bookie_delay(0))

    def read_all_digests(self) -> None:
        """Let the next digest check begin at once, with the first ledger."""
        self.read(lambda stores: stores.check_times.set_position(Walk.DIGESTS, WalkPosition()))

    def read(self, work: Callable[[MetadataStores], Coroutine[Any, Any, T]]) -> T:
        """Work with the stores, and return the result."""

        async def run() -> T:
            stores = await open_metadata(self._uri)
            try:
                return await work(stores)
            finally:
                await stores.close()

        return asyncio.run(run())


async def found_in(stores: MetadataStores) -> Found:
    """The present records and queues of a cluster."""
    await stores.ledgers.sync()
    queues = (stores.marks, stores.holes, stores.unreadable)
    marks, holes, unreadable = [frozenset([one async for one in queue.walk()]) for queue in queues]
    ledgers = {}
    async for walked in stores.ledgers.walk():
        assert isinstance(walked.found, Versioned), walked.found
        ledgers[walked.ledger_id] = walked.found.value
    return Found(ledgers, marks, holes, unreadable)


@dataclass(slots=True)
class Healed:
    """How one scenario ended.

    Attributes:
        name: The scenario.
        seconds: Time from the loss until the records and queues were whole.
        copies: The copies that were read then, once or more often.
        broken: Sentences about what is wrong.
    """

    name: str
    seconds: float
    copies: list[Copies] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def wait_until(
    what: str, records: Records, holds: Callable[[Found], bool], check: Callable[[], object]
) -> Found:
    """Wait until a condition holds for the records. An assertion states what was awaited."""

    def look() -> Found | None:
        time.sleep(PAUSE_SECONDS)
        found = records.found()
        if holds(found):
            return found
        newest.append(found)
        del newest[:-1]
        return None

    newest: list[Found] = []
    try:
        return until(look, check, HEALED_SECONDS_MAX)
    except AssertionError as error:
        state = f"; {len(newest[0].marks)} marks, {len(newest[0].holes)} holes" if newest else ""
        raise AssertionError(f"{what}: not reached{state}: {error}") from None


def read_copies(
    found: Found,
    ends: Mapping[int, int],
    ids: Collection[int],
    bookies: Mapping[str, BookieProcess],
) -> Copies:
    """Read each copy of each entry from the bookies that the records name.

    Args:
        found: The records.
        ends: The last acknowledged entry of each open ledger that is written.
        ids: The ledgers to read.
        bookies: The bookies, which must all run.
    """
    copies = Copies()
    for ledger_id in ids:
        metadata = found.ledgers[ledger_id]
        if not metadata.is_closed:
            if ledger_id not in ends:
                continue
            metadata = metadata.closed(last_entry_id=ends[ledger_id], length=0)
        copies.check(ledger_id, metadata, bookies, partial(payload, ledger_id))
    return copies
