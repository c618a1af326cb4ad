"""The layout of a cluster, which determines the paths of its ledgers.

The LAYOUT node stores the layout.
"""

from __future__ import annotations

from typing import Final

from ledgerlog_spark.errors import ConfigurationError, MetadataFormatError, WireFormatError
from ledgerlog_spark.metadata.tree import ZnodeTree, get_or_none
from ledgerlog_spark.wire.znodes import HIERARCHICAL, Layout, PathStyle

LONG_HIERARCHICAL: Final = Layout(
    "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory", 1
)
FLAT: Final = Layout("org.apache.bookkeeper.meta.FlatLedgerManagerFactory", 1)
BY_NAME: Final = {
    "hierarchical": HIERARCHICAL,
    "longhierarchical": LONG_HIERARCHICAL,
    "flat": FLAT,
}


async def read_layout(tree: ZnodeTree, root: str) -> Layout | None:
    """Read and return the cluster's layout; None if the cluster has no LAYOUT node."""
    path = f"{root}/LAYOUT"
    record = await get_or_none(tree, path)
    if record is None:
        return None
    try:
        layout = Layout.decode(record.value)
    except WireFormatError as error:
        raise MetadataFormatError(f"{path} cannot be read: {error}", path=path) from error
    if layout not in BY_NAME.values():
        raise MetadataFormatError(
            f"{path} names the layout {layout.factory}:{layout.version}, which only "
            f"Apache BookKeeper can read; ledgerlog reads {', '.join(BY_NAME)}",
            path=path,
            factory=layout.factory,
        )
    return layout


def settled_layout(stored: Layout | None, requested: str | None, root: str) -> Layout:
    """Return the layout to use.

    `stored` is from the cluster's LAYOUT node, `requested` from the URI.
    """
    if requested is None:
        return stored or HIERARCHICAL
    wanted = BY_NAME[requested]
    if stored is not None and stored != wanted:
        raise ConfigurationError(
            f"the metadata service URI has the layout {requested!r}, but the cluster at {root} "
            f"has {stored.factory}: begin the URI with zk:// to use the cluster's layout",
            layout=requested,
            factory=stored.factory,
        )
    return wanted


def style_of(layout: Layout) -> PathStyle:
    """Return the style of ledgers' paths in a layout, which is one of `BY_NAME`."""
    return next(PathStyle(name) for name, each in BY_NAME.items() if each == layout)
