"""The locks of ledgers, which the replication workers of Apache and of ledgerlog take."""

from __future__ import annotations

from ledgerlog_spark.errors import LedgerLogError, MetadataUnknownError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.held_nodes import HeldNodes
from ledgerlog_spark.metadata.replication.decoding import decoded
from ledgerlog_spark.metadata.replication.ports import HeldLock
from ledgerlog_spark.model import Version
from ledgerlog_spark.wire.underreplication import LOCKS, decode_holder, encode_holder, lock_path

ATTEMPTS_MAX = 8
LEFT_MAX = 1_000
"""Maximum number of locks without a caller that this object stores for a later release.

Further locks without a caller end with the session.
"""
RETURNS_MAX = 16
"""Maximum number of locks without a caller that one call of `release_left` releases."""
FIRST_VERSION = Version(0, 0)
"""The version of a node that was created and not written since. Transactions compare its number."""


class ReplicationLocks:
    """One lock for each ledger. At most one live session holds a lock.

    While a session holds the lock of a ledger, no worker of Apache's auto-recovery begins work on
    this ledger. A worker that has lost its session may still write, so only versions protect the
    metadata. Each session with a lock also has a *guard*, an ephemeral node whose name is the
    session's id. Transactions check that the guard exists. Therefore a change that was decided in
    one session is never made in another session.
    """

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._root = root
        self._guards = f"{root}-repair/sessions"
        self._held = HeldNodes(tree, root + LOCKS)
        self._guarded_session = 0
        self._taken: set[int] = set()  # ledgers whose locks callers have in `_taken_in`
        self._taken_in = 0  # the id of the session in which these locks were taken
        # Ledgers whose locks this session may hold without a caller, because a call failed.
        self._left: set[int] = set()

    async def acquire(self, ledger_id: int, holder: str) -> HeldLock | None:
        """Implements `LedgerLocks.acquire`. After a lost reply, the owner of the node is read.

        All callers of this object share a session. Therefore the owner of a node does not show
        which caller has the lock, and this object stores the ids of the ledgers whose locks callers
        have.
        """
        self._begin_session()
        taken = self._taken
        if ledger_id in taken:
            return None
        taken.add(ledger_id)
        lock: HeldLock | None = None
        is_known = False
        try:
            lock = await self._acquire(ledger_id, holder)
            is_known = True
        finally:
            if lock is None:
                taken.discard(ledger_id)
            if taken is self._taken:
                self._note(ledger_id, is_left=not is_known)
        return lock

    def _begin_session(self) -> None:
        """If the session was replaced, remove the locks of the earlier session."""
        if self._taken_in != self._tree.session_id:
            self._taken, self._taken_in = set(), self._tree.session_id
            self._left.clear()

    def _note(self, ledger_id: int, *, is_left: bool) -> None:
        """Store whether this session may hold the lock of a ledger although no caller has it."""
        if not is_left:
            self._left.discard(ledger_id)
        elif len(self._left) < LEFT_MAX:
            self._left.add(ledger_id)

    async def _acquire(self, ledger_id: int, holder: str) -> HeldLock | None:
        path, data = self._root + lock_path(ledger_id), encode_holder(holder)
        lost: MetadataUnknownError | None = None
        for _ in range(ATTEMPTS_MAX):
            session_id = self._tree.session_id
            operations: list[znodes.NodeOperation] = [
                znodes.CheckNode(self._guard(session_id), FIRST_VERSION),
                znodes.CreateNode(path, data, znodes.NodeKind.EPHEMERAL),
            ]
            try:
                await self._make_guard(session_id)
                await self._tree.transact(operations)
            except znodes.TransactionFailedError as failure:
                owner = await self._owner_after(failure, path)
                if owner is not None:
                    return HeldLock(ledger_id, session_id) if owner == session_id else None
            except MetadataUnknownError as error:
                lost = error
            else:
                return HeldLock(ledger_id, session_id)
        if lost is not None:
            raise lost
        return None

    async def _owner_after(self, failure: znodes.TransactionFailedError, path: str) -> int | None:
        """Return the session that holds the lock; None if the transaction must be repeated."""
        if failure.index == 0:
            self._guarded_session = 0  # the session was replaced, or the guard was deleted
            return None
        if isinstance(failure.cause, znodes.NodeMissingError):
            await znodes.make_persistent(self._tree, self._root + LOCKS)
            return None
        if not isinstance(failure.cause, znodes.NodeExistsError):
            raise failure.cause from failure
        stat = await znodes.synced_stat(self._tree, path)
        return None if stat is None else stat.owner

    async def release(self, ledger_id: int) -> None:
        """Release the lock. Do nothing if this session does not hold the lock."""
        self._begin_session()
        taken = self._taken
        is_known = False
        try:
            await self._held.release(self._root + lock_path(ledger_id))
            is_known = True
        finally:
            taken.discard(ledger_id)
            if taken is self._taken:
                self._note(ledger_id, is_left=not is_known)

    async def release_left(self) -> None:
        """Implements `LedgerLocks.release_left`."""
        self._begin_session()
        taken = self._taken
        for ledger_id in sorted(self._left)[:RETURNS_MAX]:
            if taken is not self._taken:
                return
            if ledger_id in taken:
                continue
            taken.add(ledger_id)  # so that no caller of this session takes the lock now
            try:
                await self.release(ledger_id)
            except LedgerLogError:
                return

    async def holder(self, ledger_id: int) -> str | None:
        """Implements `LedgerLocks.holder`."""
        path = self._root + lock_path(ledger_id)
        await self._tree.sync(path)
        found = await znodes.get_or_none(self._tree, path)
        return None if found is None else decoded(path, decode_holder, found.value)

    def is_held(self, lock: HeldLock) -> bool:
        """Implements `LedgerLocks.is_held`."""
        return lock.session_id == self._tree.session_id

    def checks(self, lock: HeldLock) -> list[znodes.NodeOperation]:
        """Return operations that make a transaction fail after the lock's session has ended."""
        return [
            znodes.CheckNode(self._guard(lock.session_id), FIRST_VERSION),
            znodes.CheckNode(self._root + lock_path(lock.ledger_id), FIRST_VERSION),
        ]

    async def _make_guard(self, session_id: int) -> None:
        if self._guarded_session != session_id:
            await self._new_guard(session_id)
            self._guarded_session = session_id

    async def _new_guard(self, session_id: int) -> None:
        await znodes.make_persistent(self._tree, self._guards)
        await HeldNodes(self._tree, self._guards).acquire(self._guard(session_id), b"")

    def _guard(self, session_id: int) -> str:
        return f"{self._guards}/{session_id & 0xFFFF_FFFF_FFFF_FFFF:016x}"
