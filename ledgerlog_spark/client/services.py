"""State shared by a client's handles: transport, stores, settings, random numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.client.writable_bookies import WritableBookies
from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.metadata.bookies.registration import Registration
from ledgerlog_spark.metadata.leases import Leases
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.metadata.ports import Session
from ledgerlog_spark.transport.port import BookieTransport
from ledgerlog_spark.waits import Deadline


@dataclass(slots=True)
class Services:
    """State shared by all handles of one client.

    Attributes:
        logs: The logs of the cluster, for `log/`; None where there are only ledgers.
        leases: Leases of the cluster, for `upkeep/`; None where they are not needed.
        session: Session of the stores; None where it cannot be lost.
        bookies: The bookies that accept new ledgers.
    """

    transport: BookieTransport
    ledgers: LedgerStore
    registration: Registration
    settings: ClientSettings
    random: Random
    logs: LogStore | None = None
    leases: Leases | None = None
    session: Session | None = None
    bookies: WritableBookies = field(init=False)

    def __post_init__(self) -> None:
        """Share the known registration like the rest."""
        self.bookies = WritableBookies(self.registration)

    async def candidates(self, *, is_fresh: bool = True) -> tuple[str, ...]:
        """Writable bookies in random order.

        Args:
            is_fresh: Without it, as last read, usually without a request.

        Raises:
            MetadataUnavailableError: The registration cannot be read, or not in time.
        """
        bookies, timeout_ms = self.bookies, self.settings.metadata_timeout_ms
        async with Deadline(timeout_ms / 1e3, lambda: bookies_unread(timeout_ms)):
            names = list(await (bookies.refreshed() if is_fresh else bookies.known()))
        self.random.shuffle(names)
        return tuple(names)


def bookies_unread(timeout_ms: int) -> MetadataUnavailableError:
    """The error for a registration that was not read in time."""
    return MetadataUnavailableError(
        f"the list of bookies could not be read within {timeout_ms} ms: check that ZooKeeper runs "
        "and can be reached"
    )


def record_unread(ledger_id: int, timeout_ms: int) -> MetadataUnavailableError:
    """The error for a ledger's metadata that was not read in time."""
    return MetadataUnavailableError(
        f"the record of ledger {ledger_id} could not be read within {timeout_ms} ms: check that "
        "ZooKeeper runs and can be reached",
        ledger_id=ledger_id,
    )
