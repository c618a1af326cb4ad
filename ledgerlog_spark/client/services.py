"""What all handles of one client share: the way to bookies, the stores, settings, chance."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.client.writable_bookies import WritableBookies
from ledgerlog_spark.metadata.log_store_port import LogStore
from ledgerlog_spark.metadata.port import Leases, LedgerStore, Registration, Session
from ledgerlog_spark.transport.port import BookieTransport


@dataclass(slots=True)
class Services:
    """What all handles of one client share.

    Attributes:
        logs: The logs of the cluster, for `log/`; None where there are only ledgers.
        leases: Of the cluster, for `upkeep/`; None where nobody needs them.
        session: That the stores share; None where it cannot be lost.
        bookies: Which of them take new ledgers.
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
        """What is known of the registration is shared like the rest."""
        self.bookies = WritableBookies(self.registration)

    async def candidates(self, *, is_fresh: bool = True) -> tuple[str, ...]:
        """Writable bookies in random order.

        Args:
            is_fresh: Without it, as last heard, mostly for no request.

        Raises:
            MetadataUnavailableError: The registration cannot be read.
            TimeoutError: Not in time.
        """
        bookies = self.bookies
        async with asyncio.timeout(self.settings.metadata_timeout_ms / 1e3):
            names = list(await (bookies.asked() if is_fresh else bookies.known()))
        self.random.shuffle(names)
        return tuple(names)
