"""Paths of ledgers below a root, which depend on the layout in the cluster's LAYOUT node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ledgerlog_spark.errors import ConfigurationError, MetadataFormatError, WireFormatError
from ledgerlog_spark.metadata.tree import NodeMissingError, ZnodeTree
from ledgerlog_spark.wire.znodes import (
    HIERARCHICAL,
    Layout,
    ledger_id_of,
    ledger_path,
)

LONG_HIERARCHICAL: Final = Layout(
    "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory", 1
)
BY_NAME: Final = {"hierarchical": HIERARCHICAL, "longhierarchical": LONG_HIERARCHICAL}

SHORT_LEVELS: Final = tuple(map(re.compile, ("[0-9]{2}", "[0-9]{4}", "L[0-9]{4}")))
LONG_LEVELS: Final = tuple(
    map(re.compile, ("[0-9]{3}", "[0-9]{4}", "[0-9]{4}", "[0-9]{4}", "L[0-9]{4}"))
)


class LedgerLayout:
    """Paths of ledgers. In the long layout, every id has nineteen digits."""

    def __init__(self, layout: Layout = HIERARCHICAL) -> None:
        self._is_long = layout == LONG_HIERARCHICAL
        # Each tuple has a pattern for the names on each level below the root. Low ids come first.
        self.levels: Sequence[tuple[re.Pattern[str], ...]] = (
            (LONG_LEVELS,) if self._is_long else (SHORT_LEVELS, LONG_LEVELS)
        )

    def path(self, ledger_id: int) -> str:
        """The path of a ledger below the root, which begins with a slash."""
        return ledger_path(ledger_id, is_long=self._is_long)

    def ledger_id(self, path: str) -> int:
        """The ledger at a path below the root."""
        try:
            return ledger_id_of(path, is_long=self._is_long)
        except WireFormatError as error:
            raise MetadataFormatError(
                f"{path} below the ledgers root is not a ledger: {error}", path=path
            ) from error


async def read_layout(tree: ZnodeTree, root: str) -> Layout | None:
    """The cluster's layout; None if the cluster has no LAYOUT node."""
    path = f"{root}/LAYOUT"
    try:
        record = await tree.get(path)
    except NodeMissingError:
        return None
    try:
        layout = Layout.decode(record.value)
    except WireFormatError as error:
        raise MetadataFormatError(f"{path} cannot be read: {error}", path=path) from error
    if layout not in BY_NAME.values():
        raise MetadataFormatError(
            f"{path} names the layout {layout.factory}:{layout.version}, which only "
            f"Apache BookKeeper can read; ledgerlog reads {' and '.join(BY_NAME)}",
            path=path,
            factory=layout.factory,
        )
    return layout


def settled_layout(stored: Layout | None, requested: str | None, root: str) -> Layout:
    """The layout to use, from the cluster's LAYOUT node and the URI."""
    if requested is None:
        return stored or HIERARCHICAL
    wanted = BY_NAME[requested]
    if stored is not None and stored != wanted:
        raise ConfigurationError(
            f"the metadata service URI names the layout {requested!r}, and the cluster at {root} "
            f"has {stored.factory}: write zk:// to take the cluster's layout",
            layout=requested,
            factory=stored.factory,
        )
    return wanted
