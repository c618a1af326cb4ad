"""Apache's election of the auditor: the oldest vote in `underreplication/auditorelection` wins.

A vote is an ephemeral node with a number, so it is deleted when its session ends. Each candidate
watches the vote before its own vote. Auditors of ledgerlog and of Apache use the same votes, so at
most one of all these auditors is elected. Two auditors may work for a short time: an auditor that
has not yet noticed the end of its session, and its successor.
"""

from __future__ import annotations

import asyncio
import logging

from ledgerlog_spark.errors import LedgerLogError, MetadataUnavailableError, MetadataUnknownError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.replication.decoding import decoded
from ledgerlog_spark.metadata.settled_writes import ATTEMPTS_MAX, delete_node, put_node
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.underreplication import (
    ELECTION,
    VOTE_PREFIX,
    decode_holder,
    encode_holder,
    vote_number,
)

RETRY_DELAY_SECONDS = 1.0

_logger = logging.getLogger(__name__)


class TreeElection:
    """Implements `AuditorElection` on a tree of nodes."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._directory = root + ELECTION

    async def join(self, candidate_id: str) -> TreeAuditorVote:
        """Implements `AuditorElection.join`."""
        await znodes.make_persistent(self._tree, self._directory)
        name = await self._vote(encode_holder(candidate_id))
        stat = await znodes.synced_stat(self._tree, f"{self._directory}/{name}")
        owner = 0 if stat is None else stat.owner
        candidacy = TreeAuditorVote(self._tree, self._directory, name, candidate_id, owner)
        candidacy.begin()
        return candidacy

    async def current(self) -> str | None:
        """Implements `AuditorElection.current`."""
        await self._tree.sync(self._directory)
        for name in await votes_in(self._tree, self._directory):
            path = f"{self._directory}/{name}"
            found = await znodes.get_or_none(self._tree, path)
            if found is not None:
                return decoded(path, decode_holder, found.value)
        return None

    async def _vote(self, data: bytes) -> str:
        """Create a vote, and return its name.

        The reply to the creation of a vote may be lost, in this call or in an earlier call. If this
        session already has a vote of the candidate, the call returns this vote. Otherwise that vote
        could win the election although no auditor watches it.
        """
        lost: MetadataUnknownError | None = None
        for _ in range(ATTEMPTS_MAX):
            name = await self._own(data)
            if name is not None:
                return name
            try:
                created = await self._tree.create(
                    f"{self._directory}/{VOTE_PREFIX}",
                    data,
                    kind=znodes.NodeKind.EPHEMERAL_SEQUENTIAL,
                )
            except znodes.NodeMissingError:
                await znodes.make_persistent(self._tree, self._directory)
            except MetadataUnknownError as error:
                lost = error
            else:
                return created.path.rpartition("/")[2]
        raise lost or MetadataUnavailableError(
            f"the directory {self._directory} was deleted after every attempt to create it",
            path=self._directory,
        )

    async def _own(self, data: bytes) -> str | None:
        await self._tree.sync(self._directory)
        for name in await votes_in(self._tree, self._directory):
            if await is_own(self._tree, f"{self._directory}/{name}", data):
                return name
        return None


class TreeAuditorVote:
    """Implements `AuditorVote`: a vote, and a task that follows its place among the votes."""

    def __init__(
        self,
        tree: znodes.ZnodeTree,
        directory: str,
        name: str,
        candidate_id: str,
        session_id: int,
    ) -> None:
        self.elected = asyncio.Event()
        self.lost = asyncio.Event()
        self._tree = tree
        self._directory = directory
        self._name = name
        self._data = encode_holder(candidate_id)
        self._session_id = session_id
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def may_publish(self) -> bool:
        """Implements `AuditorVote.may_publish`."""
        return (
            self.elected.is_set()
            and not self.lost.is_set()
            and self._tree.is_connected
            and self._tree.session_id == self._session_id
        )

    def begin(self) -> None:
        """Begin to follow the place of this vote among the votes."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def leave(self) -> None:
        """Implements `AuditorVote.leave`."""
        task, self._task = self._task, None
        self._lose()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await delete_node(self._tree, self._path, None)

    @property
    def _path(self) -> str:
        return f"{self._directory}/{self._name}"

    async def _follow(self) -> None:
        cancels = [
            self._tree.watch_session(self._lose),
            self._tree.watch(self._path, self._changed.set),
        ]
        stop_watching = _nothing
        self._changed.set()
        try:
            while not self.lost.is_set():
                await forever(self._changed.wait(), "a candidate waits until it leaves")
                self._changed.clear()
                stop_watching()
                stop_watching = _nothing
                try:
                    before = await self._look()
                except LedgerLogError as error:
                    _logger.warning("the election of the auditor cannot be read: %s", error)
                    self._changed.set()
                    await asyncio.sleep(RETRY_DELAY_SECONDS)
                    continue
                if before is not None:
                    stop_watching = self._tree.watch(before, self._changed.set)
                    if await self._is_gone(before):
                        self._changed.set()
        finally:
            for cancel in (*cancels, stop_watching):
                cancel()

    async def _look(self) -> str | None:
        """Read the votes. Return the path of the vote before this vote; None for the first vote."""
        await self._tree.sync(self._directory)
        names = await votes_in(self._tree, self._directory)
        if self._name not in names or self._tree.session_id != self._session_id:
            self._lose()
            return None
        earlier = names[: names.index(self._name)]
        if not earlier:
            await self._lead()
            return None
        before = f"{self._directory}/{earlier[-1]}"
        if await is_own(self._tree, before, self._data):
            await delete_node(self._tree, before, None)  # an own vote, whose reply was lost
            self._changed.set()
            return None
        return before

    async def _lead(self) -> None:
        if not self.elected.is_set():
            # Apache's auditor also stores its id here, so that people can read it.
            await put_node(self._tree, self._directory, self._data)
            self.elected.set()

    async def _is_gone(self, path: str) -> bool:
        """Return whether a vote no longer exists.

        It may have been deleted before its watch was set.
        """
        try:
            return await self._tree.stat(path) is None
        except LedgerLogError:
            return True  # the caller then reads the votes again

    def _lose(self) -> None:
        self.lost.set()
        self._changed.set()


async def votes_in(tree: znodes.ZnodeTree, directory: str) -> list[str]:
    """Return the names of the votes, oldest first. Omit names that are not names of votes."""
    numbers = {name: vote_number(name) for name in await znodes.children_of(tree, directory)}
    votes = [(number, name) for name, number in numbers.items() if number is not None]
    return [name for _, name in sorted(votes)]


async def is_own(tree: znodes.ZnodeTree, path: str, data: bytes) -> bool:
    """Return whether a vote belongs to this session and has this data."""
    stat = await tree.stat(path)
    if stat is None or stat.owner != tree.session_id:
        return False
    found = await znodes.get_or_none(tree, path)
    return found is not None and found.value == data


def _nothing() -> None:
    """Do nothing. This function stands for the end of a watch while no watch is set."""
