"""The settings of auto-recovery for the whole cluster, in Apache's nodes."""

from __future__ import annotations

from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.replication.decoding import decoded
from ledgerlog_spark.metadata.settled_writes import ATTEMPTS_MAX, delete_node, put_node
from ledgerlog_spark.metadata.tree import CancelWatch, OnChange
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.wire.underreplication import (
    DISABLED,
    LOST_BOOKIE_DELAY,
    decode_delay,
    encode_delay,
)

DELAY_SECONDS = 60
"""The delay in seconds that is stored if no delay exists.

A restart of a bookie takes less time than this delay.
"""


class ReplicationSwitch:
    """Implements `RecoverySwitch` on a tree of nodes."""

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._disabled = root + DISABLED
        self._delay = root + LOST_BOOKIE_DELAY

    async def is_enabled(self) -> bool:
        """Implements `RecoverySwitch.is_enabled`."""
        return await znodes.synced_stat(self._tree, self._disabled) is None

    async def enable(self) -> bool:
        """Implements `RecoverySwitch.enable`."""
        await self._tree.sync(self._disabled)
        return await delete_node(self._tree, self._disabled, None)

    async def disable(self) -> bool:
        """Implements `RecoverySwitch.disable`."""
        attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
        for attempt in attempts:
            with attempt:
                try:
                    await self._tree.create(self._disabled, make_parents=True)
                except znodes.NodeExistsError:
                    return attempts.lost is not None
                return True
        raise attempts.error()

    async def lost_bookie_delay(self) -> Versioned[int] | None:
        """Implements `RecoverySwitch.lost_bookie_delay`."""
        await self._tree.sync(self._delay)
        found = await znodes.get_or_none(self._tree, self._delay)
        if found is None:
            return None
        return Versioned(decoded(self._delay, decode_delay, found.value), found.version)

    async def initialize_delay(self, seconds: int) -> None:
        """Implements `RecoverySwitch.initialize_delay`."""
        await znodes.make_persistent(self._tree, znodes.parent_of(self._delay))
        await znodes.make_node(self._tree, self._delay, encode_delay(seconds))

    async def set_lost_bookie_delay(self, seconds: int) -> None:
        """Implements `RecoverySwitch.set_lost_bookie_delay`."""
        await put_node(self._tree, self._delay, encode_delay(seconds))

    async def audit_now(self) -> None:
        """Implements `RecoverySwitch.audit_now`. If no delay is stored, the default is stored."""
        found = await self.lost_bookie_delay()
        await self.set_lost_bookie_delay(DELAY_SECONDS if found is None else found.value)

    def watch_enabled(self, on_change: OnChange) -> CancelWatch:
        """Implements `RecoverySwitch.watch_enabled`."""
        return self._tree.watch(self._disabled, on_change)

    def watch_delay(self, on_change: OnChange) -> CancelWatch:
        """Implements `RecoverySwitch.watch_delay`."""
        return self._tree.watch(self._delay, on_change)
