"""The store of the topology: the places of bookies and the policy that an operator set.

The node is at `<root>-repair/topology`, outside the ledgers root, so Apache's tools never see it.
"""

from __future__ import annotations

from dataclasses import fields

from ledgerlog_spark.errors import (
    ConfigurationError,
    MetadataFormatError,
    MetadataVersionError,
    WireFormatError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.settled_writes import write_node
from ledgerlog_spark.model import BookieInfo, Version, Versioned
from ledgerlog_spark.protocol.placement.places import BookiePlace
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from ledgerlog_spark.wire.topology import Topology


class TopologyStore:
    """The topology of the cluster at one root."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._path = f"{root}-repair/topology"

    async def read(self) -> Versioned[Topology] | None:
        """Return the topology; None if no topology is set.

        Raises:
            MetadataFormatError: A later release wrote the node, or the node is damaged.
        """
        found = await znodes.get_or_none(self._tree, self._path)
        if found is None:
            return None
        try:
            return Versioned(Topology.decode(found.value), found.version)
        except WireFormatError as error:
            raise MetadataFormatError(
                f"the node {self._path} cannot be read: {error.message}", path=self._path
            ) from error

    async def write(self, topology: Topology, version: Version | None) -> None:
        """Create the topology (if `version` is None) or replace it.

        If an answer is lost and the store has the same topology, the topology counts as written.

        Raises:
            MetadataVersionError: Another process wrote the topology first.
            WireFormatError: The topology is too large. Nothing was written.
        """
        written = await write_node(self._tree, self._path, topology.encode(), version)
        if written is None:
            raise MetadataVersionError(
                f"another process has just changed {self._path}; nothing was changed, so try again",
                path=self._path,
            )


def place_of(info: BookieInfo | None, bookie_id: str, topology: Topology) -> BookiePlace:
    """Return the place of a bookie. Each part that the topology lacks is from the registration."""
    known = topology.bookies.get(bookie_id, {})
    registered = BookiePlace() if info is None else BookiePlace(info.host, info.rack, info.region)
    return BookiePlace(
        known.get("host", registered.host),
        known.get("rack", registered.rack),
        known.get("region", registered.region),
    )


def policy_of(topology: Topology) -> PlacementPolicy:
    """Return the policy of the cluster. Fields that this release does not have are ignored.

    Raises:
        MetadataFormatError: A field has a wrong value.
    """
    names = {one.name for one in fields(PlacementPolicy)}
    given = {name: value for name, value in topology.policy.items() if name in names}
    try:
        return PlacementPolicy(**given)  # type: ignore[arg-type]
    except ConfigurationError as error:
        raise MetadataFormatError(
            f"the policy of the cluster is wrong: {error}; `ledgerlog bookies policy` changes it"
        ) from error
