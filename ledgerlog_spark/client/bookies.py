"""The bookies from which a client chooses an ensemble: their ids, places and free bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from ledgerlog_spark.client.seldom import Seldom
from ledgerlog_spark.errors import (
    BookieUnavailableError,
    ConfigurationError,
    MetadataFormatError,
    NotEnoughBookiesError,
    WireFormatError,
)
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.topologies import TopologyStore, place_of, policy_of
from ledgerlog_spark.model import BookieInfo, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.placement.adherence import Adherence, adherence
from ledgerlog_spark.protocol.placement.place import Unplaceable
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from ledgerlog_spark.protocol.placement.preference import in_preference
from ledgerlog_spark.protocol.placement.quarantine import Quarantine
from ledgerlog_spark.wire.topology import Topology

REFRESH_SECONDS = 60
"""Age in seconds at which the choice of bookies reads registrations and the topology again."""
READS_MAX = 64
"""Maximum number of registrations that are read at the same time."""
GONE_MAX = 1_000
"""Maximum number of unregistered bookies whose places the client keeps in memory."""

_logger = logging.getLogger(__name__)


class WritableBookies:
    """The bookies that accept new ledgers, cached until a watch reports a change.

    When a bookie becomes writable or is no longer writable, the cache changes a moment later. If
    the cache has too few bookies, the caller must read the list again.
    """

    def __init__(self, registration: Registration) -> None:
        """Create an empty cache.

        Before its first use, it neither reads nor watches registrations.
        """
        self._registration = registration
        self._names: Sequence[str] | None = None
        self._changes = 0
        self._is_watched = False

    async def known(self) -> Sequence[str]:
        """Return the cached bookie ids, sorted. If the cache is empty, read the ids first."""
        return await self.refreshed() if self._names is None else self._names

    async def refreshed(self) -> Sequence[str]:
        """Read the bookie ids from the metadata store, and return them sorted."""
        if not self._is_watched:
            self._is_watched = True
            self._registration.watch_writable(self._on_change)  # until the session is closed
        changes = self._changes
        names = await self._registration.writable()
        if changes == self._changes:  # otherwise these names may be older than the change
            self._names = names
        return names

    def _on_change(self) -> None:
        self._changes += 1
        self._names = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The bookies from which one ensemble is chosen.

    Attributes:
        names: The writable bookies, in a random order of preference.
        bookies: The places of all bookies that the client has listed, and its quarantine.
        policy: The rules of placement.
    """

    names: tuple[str, ...]
    bookies: BookieMap
    policy: PlacementPolicy


class BookieChoice:
    """The facts about the bookies of a cluster that one client has read.

    A registration is read when its bookie is first listed, and later at most once a minute.
    Therefore free bytes and places may be a minute old. The quarantine contains only bookies whose
    failures this client has noticed.
    """

    def __init__(
        self,
        registration: Registration,
        topologies: TopologyStore | None,
        policy: PlacementPolicy | None,
        random: Random,
    ) -> None:
        """Create an object that reads nothing before its first use.

        If `policy` is given, it replaces the policy of the cluster. If `topologies` is None, the
        topology of the cluster is not read.
        """
        self.writable = WritableBookies(registration)
        self._registration = registration
        self._topologies = topologies
        self._own_policy = policy
        self._random = random
        self._quarantine = Quarantine()
        self._topology = Topology()
        self._policy = policy or PlacementPolicy()
        self._infos: dict[str, BookieInfo | None] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._reported: tuple[str, ...] = ()
        self.absence_lines = Seldom()  # limits lines about bookies that none can replace

    async def candidates(self, *, is_fresh: bool) -> Candidates:
        """Return the writable bookies. If `is_fresh` is false, they may come from the cache."""
        if is_fresh:
            names = await self.writable.refreshed()
        else:
            names = await self.writable.known()
        bookies = await self.known(names)
        free_bytes = {name: self._free_bytes(name) for name in names}
        draws = {name: self._random.random() for name in names}
        order = in_preference(free_bytes, draws, bookies.quarantined)
        return Candidates(order, bookies, self._policy)

    async def known(self, names: Iterable[str]) -> BookieMap:
        """Return the places of these bookies, and of all bookies that were listed before."""
        async with self._reading:
            await self._refresh(names)
        return self._known_now()

    def _known_now(self) -> BookieMap:
        known = {*self._infos, *self._topology.bookies}
        places = {name: place_of(self._infos.get(name), name, self._topology) for name in known}
        roomless = frozenset(name for name in self._infos if self._free_bytes(name) == 0)
        return BookieMap(places, self._quarantine.bookies(_now_ms()), roomless)

    async def policy(self) -> PlacementPolicy:
        """Return the policy of this client, or the policy of the cluster if the client has none."""
        async with self._reading:
            await self._refresh(())
        return self._policy

    async def adherence_of(self, metadata: LedgerMetadata) -> list[Adherence]:
        """Compare the ensemble of each fragment of a ledger with the policy.

        The quarantine and the free bytes are ignored, because they matter only for new entries.
        """
        bookies = await self.known({n for f in metadata.fragments for n in f.ensemble})
        places = BookieMap(bookies.places)
        return [
            adherence(fragment.ensemble, metadata.quorum, places, self._policy)
            for fragment in metadata.fragments
        ]

    def failed(self, bookie_ids: Iterable[str]) -> None:
        """Record that a writer replaced these bookies, or continued without them."""
        for bookie_id in bookie_ids:
            self._quarantine.failed(bookie_id, _now_ms())

    def report(self, ensemble: Sequence[str], quorum: Quorum) -> None:
        """Log a warning if a chosen ensemble breaks other rules than the last chosen ensemble."""
        found = adherence(ensemble, quorum, self._known_now(), self._policy)
        if found.broken and found.broken != self._reported:
            _logger.warning(
                "new entries are not placed as the policy requires: %s. `ledgerlog bookies policy` "
                "shows the policy and the places of all bookies",
                found,
            )
        self._reported = found.broken

    def _free_bytes(self, name: str) -> int | None:
        info = self._infos.get(name)
        return None if info is None else info.free_bytes

    async def _refresh(self, names: Iterable[str]) -> None:
        """Read the registrations of new bookies.

        If the last read is too old, read all registrations again.
        """
        now = asyncio.get_running_loop().time()
        is_due = self._read_at is None or now - self._read_at >= REFRESH_SECONDS
        missing = [name for name in names if is_due or name not in self._infos]
        if is_due:
            await self._read_topology()
        for first in range(0, len(missing), READS_MAX):
            some = missing[first : first + READS_MAX]
            found = await asyncio.gather(*map(self._read, some))
            for name, info in zip(some, found, strict=True):
                self._infos.pop(name, None)  # the bookies that were read last are at the end
                self._infos[name] = info
        if is_due:
            self._read_at = now
            while len(self._infos) > len(missing) + GONE_MAX:
                del self._infos[next(iter(self._infos))]

    async def _read(self, name: str) -> BookieInfo | None:
        """Read a registration. If it cannot be read, return the registration that was read last."""
        try:
            return await self._registration.info(name)
        except (BookieUnavailableError, WireFormatError, ConfigurationError):
            return self._infos.get(name)

    async def _read_topology(self) -> None:
        if self._topologies is None:
            return
        try:
            found = await self._topologies.read()
            topology = Topology() if found is None else found.value
            policy = self._own_policy or policy_of(topology)
        except MetadataFormatError as error:
            _logger.warning("the last known places and policy stay in use: %s", error)
            return
        self._topology, self._policy = topology, policy


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1_000)


def not_enough_bookies(
    quorum: Quorum, candidates: Candidates, why: Unplaceable
) -> NotEnoughBookiesError:
    """Return the error for a ledger that cannot be placed, with the needed and the found number."""
    size, copies = quorum.ensemble_size, quorum.write_quorum
    writable, found = len(candidates.names), why.available
    figures: dict[str, Any] = {"wanted": why.wanted, "available": found, "missing": why.missing}
    policy = "`ledgerlog bookies policy"
    if why.missing == "bookies":
        return NotEnoughBookiesError(
            f"a ledger with ensemble_size {size} needs {size} writable bookies, but there are "
            f"{found}: start more bookies, or use a smaller ensemble_size",
            **figures,
        )
    if why.missing == "hosts":
        return NotEnoughBookiesError(
            f"a ledger with ensemble_size {size} and write_quorum {copies} needs different hosts "
            f"for the {copies} copies of each entry, but the hosts of the {writable} writable "
            f"bookies are {found}: start bookies on other hosts, or allow one host for two copies: "
            f"{policy} --hosts same`",
            **figures,
        )
    if why.missing in ("racks", "regions"):
        return NotEnoughBookiesError(
            f"a ledger with write_quorum {copies} needs {why.wanted} {why.missing} for the copies "
            f"of each entry, but the {why.missing} of the {writable} writable bookies are {found}: "
            f"start bookies in other places, or run {policy} --enforce none`",
            **figures,
        )
    kind = {"free bytes": "have free bytes", "quarantine": "did not fail a moment ago"}[why.missing]
    return NotEnoughBookiesError(
        f"a ledger with ensemble_size {size} needs {size} bookies that {kind}, but of the "
        f"{writable} writable bookies only {found} can be chosen: start more bookies, or run "
        f"{policy} --enforce none`",
        **figures,
    )
