"""New ledger ids, from the counter that Apache BookKeeper's clients also use.

All clients share this counter, because a separate counter would return ids that a Java client also
gets. An id is the number of an EPHEMERAL_SEQUENTIAL node under `idgen`. One transaction creates the
nodes for several ids. When all 31-bit numbers of the counter are used up, an id has two parts, as
in Apache BookKeeper. The high 32 bits are the number of a directory `idgen-long/HOB-<n>`. The low
31 bits are the number of a node in this directory. In the flat layout, the counter belongs to the
ledgers root, and ids have at most 31 bits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass

from ledgerlog_spark.errors import (
    LedgerLogError,
    LocalProtocolError,
    MetadataError,
    MetadataUnavailableError,
    MetadataUnknownError,
    RemoteProtocolError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.znodes import PathStyle

COUNT_MAX = 64
TRANSACTIONS_MAX = 4
"""Maximum number of transactions for new ids that run at the same time."""
ATTEMPTS_MAX = 3
NUMBER_END = (1 << 31) - 1
HIGH_PREFIX = "HOB-"


@dataclass(eq=False, slots=True)
class _Order:
    """A call that waits for new ids."""

    count: int
    ids: asyncio.Future[list[int]]


class LedgerIds:
    """Generates unique ledger ids. Unused ids are lost."""

    def __init__(
        self, tree: znodes.ZnodeTree, root: str, style: PathStyle = PathStyle.HIERARCHICAL
    ) -> None:
        self._tree = tree
        self._root = root
        self._is_flat = style is PathStyle.FLAT
        self._short = root if self._is_flat else f"{root}/idgen"
        self._long = f"{root}/idgen-long"
        self._is_short: bool | None = True if self._is_flat else None
        self._high: int | None = None
        self._removals: set[asyncio.Task[None]] = set()
        # calls that wait for a transaction; this class does not limit their number
        self._orders: deque[_Order] = deque()
        self._transactions: set[asyncio.Task[None]] = set()

    async def take(self, count: int) -> list[int]:
        """Return `count` (1 to 64) new ids, in ascending order.

        Calls that wait at the same time share one transaction. If this transaction fails, all these
        calls fail.
        """
        if not 1 <= count <= COUNT_MAX:
            raise LocalProtocolError(
                f"{count} ids were requested, but one call returns 1 to {COUNT_MAX} ids",
                count=count,
            )
        loop = asyncio.get_running_loop()
        order = _Order(count, loop.create_future())
        self._orders.append(order)
        if len(self._orders) == 1:
            loop.call_soon(self._begin)  # after the other calls of this iteration of the loop
        return await forever(order.ids, "each request of the transaction has a deadline")

    def _begin(self) -> None:
        """Begin transactions for the waiting calls, at most `TRANSACTIONS_MAX` at the same time."""
        while self._orders and len(self._transactions) < TRANSACTIONS_MAX:
            served: list[_Order] = []
            count = 0
            while self._orders and count + self._orders[0].count <= COUNT_MAX:
                count += self._orders[0].count
                served.append(self._orders.popleft())
            task = asyncio.get_running_loop().create_task(self._serve(served, count))
            self._transactions.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._transactions.discard(task)
        self._begin()

    async def _serve(self, served: list[_Order], count: int) -> None:
        try:
            numbers = await self._take(count)
        except BaseException as error:  # each call must end, also after a bug
            for order in served:
                if not order.ids.done():
                    order.ids.set_exception(error)
            if not isinstance(error, LedgerLogError):
                raise
        else:
            for order in served:
                if not order.ids.done():
                    order.ids.set_result(numbers[: order.count])
                del numbers[: order.count]

    async def _take(self, count: int) -> list[int]:
        if self._is_short is None:
            self._is_short = await self._tree.stat(self._long) is None
        if self._is_short:
            numbers = await self._numbers(self._short, count)
            if numbers is not None:
                return numbers
            if self._is_flat:
                raise RemoteProtocolError(
                    f"the ledger ids of the flat layout at {self._root} are used up: it has no ids "
                    f"above {NUMBER_END}",
                    root=self._root,
                )
            # The counter of `idgen` is used up. A further node would overflow the counter, so that
            # its numbers repeat.
            self._is_short = False
        return await self._take_long(count)

    async def close(self) -> None:
        """Wait until the requests of all calls and the deletions of their nodes have ended."""
        while self._removals or self._transactions:
            await asyncio.gather(*self._removals, *self._transactions, return_exceptions=True)

    async def _take_long(self, count: int) -> list[int]:
        for _ in range(ATTEMPTS_MAX):
            high = self._high or await self._highest()
            directory = f"{self._long}/{HIGH_PREFIX}{high:010d}"
            await znodes.make_persistent(self._tree, directory)
            numbers = await self._numbers(directory, count)
            if numbers is not None:
                self._high = high
                return [(high << 32) | number for number in numbers]
            with contextlib.suppress(znodes.NodeExistsError):
                await self._tree.create(f"{self._long}/{HIGH_PREFIX}{high + 1:010d}")
            self._high = None
        raise RemoteProtocolError(f"the ledger id counters below {self._long} are all used up")

    async def _highest(self) -> int:
        """Return the number of the newest directory `HOB-<n>`; 1 if no such directory exists."""
        await self._tree.sync(self._root)
        names = await znodes.children_of(self._tree, self._long)
        numbers = [n.removeprefix(HIGH_PREFIX) for n in names if n.startswith(HIGH_PREFIX)]
        return max((int(n) for n in numbers if n.isdecimal()), default=1)

    async def _numbers(self, directory: str, count: int) -> list[int] | None:
        """Return `count` new numbers of a directory's counter; None if the counter is used up.

        If a reply is lost, the numbers of this attempt are wasted, because the next attempt gets
        other numbers.
        """
        create = znodes.CreateNode(f"{directory}/ID-", kind=znodes.NodeKind.EPHEMERAL_SEQUENTIAL)
        lost: MetadataUnknownError | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                outcomes = await self._tree.transact([create] * count)
            except znodes.TransactionFailedError as failure:
                if not isinstance(failure.cause, znodes.NodeMissingError):
                    raise failure.cause from failure
                await require_cluster(self._tree, self._root)
                await znodes.make_persistent(self._tree, directory)
            except MetadataUnknownError as error:
                lost = error
            else:
                paths = [each.path for each in outcomes if isinstance(each, znodes.Created)]
                self._remove_later(paths)
                numbers = [_number(path) for path in paths]
                is_used_up = not all(0 <= number < NUMBER_END for number in numbers)
                return None if is_used_up else numbers
        raise lost or MetadataUnavailableError(
            f"the directory {directory} was deleted after every attempt to create it",
            path=directory,
        )

    def _remove_later(self, paths: list[str]) -> None:
        """Begin to delete the ephemeral nodes now.

        Otherwise they would stay until the session ends, and the directory would be large.
        """
        task = asyncio.get_running_loop().create_task(self._remove(paths))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _remove(self, paths: list[str]) -> None:
        with contextlib.suppress(MetadataError):
            await self._tree.transact([znodes.DeleteNode(path) for path in paths])


async def require_cluster(tree: znodes.ZnodeTree, root: str) -> None:
    """Raise MetadataError unless there is a cluster at `root`."""
    if await tree.stat(root) is None:
        await tree.sync(root)
        if await tree.stat(root) is None:
            raise MetadataError(
                f"no cluster at {root} of {tree.address}: check the path of the metadata service "
                "URI, or create a cluster there with `ledgerlog cluster init`",
                root=root,
                address=tree.address,
            )


def _number(path: str) -> int:
    text = path.rpartition("/ID-")[2]
    try:
        return int(text)
    except ValueError:
        raise RemoteProtocolError(f"{path} is not the name of a sequential node") from None
