"""Lists the ids of the ledgers in a range of ids, from the names of nodes.

A listing reads only directories, and reads several directories at the same time. It needs no memory
for ledgers outside the range, except for those in the same directory. A directory has at most
10,000 ledgers, except in the flat layout.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from ledgerlog_spark.errors import MetadataFormatError, WireFormatError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.ledgers.ids import require_cluster
from ledgerlog_spark.metadata.ordered import in_order
from ledgerlog_spark.wire.znodes import LEDGER_ID_MAX, PathStyle, ledger_id_of

DIRECTORIES_DEPTH: Final = 8
"""Maximum number of directories that a listing requests at the same time."""

_DIGITS: Final = 10
SHORT_LEVELS: Final = tuple(map(re.compile, ("[0-9]{2}", "[0-9]{4}", "L[0-9]{4}")))
LONG_LEVELS: Final = tuple(
    map(re.compile, ("[0-9]{3}", "[0-9]{4}", "[0-9]{4}", "[0-9]{4}", "L[0-9]{4}"))
)
FLAT_LEVELS: Final = (re.compile("L[0-9]{10,19}"),)
"""The patterns of the names on each level below the root, from the top level to the lowest
level."""

_LEVELS: Final = {
    # The directories of SHORT_LEVELS are read first, because they contain lower ids.
    PathStyle.HIERARCHICAL: (SHORT_LEVELS, LONG_LEVELS),
    PathStyle.LONG_HIERARCHICAL: (LONG_LEVELS,),
    PathStyle.FLAT: (FLAT_LEVELS,),
}
_LOWER_DIGITS: Final = 4
"""Number of digits of a ledger id in a name below the top level, in layouts with several levels."""


class LedgerIdListing:
    """The ids of the ledgers below one root."""

    def __init__(self, tree: znodes.ZnodeTree, root: str, style: PathStyle) -> None:
        self._tree = tree
        self._root = root
        self._style = style

    async def ids(self, after: int, last: int) -> AsyncGenerator[int, None]:
        """Yield the ids above `after`, up to and including `last`, ascending.

        See `LedgerStore.ids`.
        """
        names = await self._top()
        for levels in _LEVELS[self._style]:
            tops = [name for name in names if levels[0].fullmatch(name)]
            if len(levels) == 1:
                for ledger_id in sorted(self._ledger_at(f"/{name}") for name in tops):
                    if after < ledger_id <= last:
                        yield ledger_id
                continue
            directories = self._directories(tops, levels, after, last)
            listed = in_order(directories, self._names_in, DIRECTORIES_DEPTH)
            async with aclosing(listed):
                async for directory, leaves in listed:
                    for name in leaves:
                        ledger_id = self._leaf(f"{directory}/{name}", name, levels[-1])
                        if after < ledger_id <= last:
                            yield ledger_id

    async def _top(self) -> list[str]:
        try:
            return await self._tree.children(self._root)
        except znodes.NodeMissingError:
            await require_cluster(self._tree, self._root)
            return await self._tree.children(self._root)

    async def _directories(
        self, tops: list[str], levels: tuple[re.Pattern[str], ...], after: int, last: int
    ) -> AsyncGenerator[str, None]:
        """Yield the lowest directories that may have ids of the range, in ascending order."""
        below = len(levels) - 1
        for name in tops:
            if _may_have(name, below, after, last):
                async for directory in self._below(f"/{name}", levels[1:], after, last):
                    yield directory

    async def _below(
        self, directory: str, levels: tuple[re.Pattern[str], ...], after: int, last: int
    ) -> AsyncGenerator[str, None]:
        if len(levels) == 1:
            yield directory
            return
        for name in await znodes.children_of(self._tree, self._root + directory):
            path = f"{directory}/{name}"
            if not levels[0].fullmatch(name):
                raise self._surprise(path)
            if _may_have(path.replace("/", ""), len(levels) - 1, after, last):
                async for deeper in self._below(path, levels[1:], after, last):
                    yield deeper

    async def _names_in(self, directory: str) -> tuple[str, list[str]]:
        """Return a directory and the names in it.

        A directory that was just deleted counts as empty.
        """
        return directory, await znodes.children_of(self._tree, self._root + directory)

    def _leaf(self, path: str, name: str, pattern: re.Pattern[str]) -> int:
        if not pattern.fullmatch(name):
            raise self._surprise(path)
        return self._ledger_at(path)

    def _ledger_at(self, path: str) -> int:
        try:
            return ledger_id_of(path, self._style)
        except WireFormatError as error:
            raise MetadataFormatError(
                f"{path} below the ledgers root is not a ledger: {error}", path=path
            ) from error

    def _surprise(self, path: str) -> MetadataFormatError:
        return MetadataFormatError(
            f"{self._root}{path} is not a path of the layout of ledgers", path=path
        )


def _may_have(digits: str, levels_below: int, after: int, last: int) -> bool:
    """Whether the directory with these digits in its path may have ids of the range."""
    size: int = _DIGITS ** (_LOWER_DIGITS * levels_below)
    first = int(digits) * size
    return first <= min(last, LEDGER_ID_MAX) and first + size - 1 > after
