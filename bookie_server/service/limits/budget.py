"""Shares a bound of bytes among peers: nobody above the bound, nobody starved, no peer too much.

A `Budget` is the bound of one lane (what is received, answers to reads, recovery and fencing). A
`Share` is what one connection or stream holds of it. The rules, all decided here and nowhere else:

1. A share has a small reserve of its own. Within it, bytes are always granted.
2. Beyond it, a share may hold half as much as the lane has free: one alone gets a third of the
   lane, of n greedy ones each gets an (n + 2)th, and something stays free for the next one. A host
   (an address) may hold twice what is free: a third of the lane is left to other hosts.
3. A share is trusted with four times the most that it held and finished with. What is larger it
   gets only while the lane is less than half full: the other half is left to those who are known
   to finish.
4. Who does not fit waits in line. The line is one of fair queueing: each share's place is the
   virtual time plus the bytes that it wants, a multiple of them where it is not trusted, so those
   who want little, or have proved themselves, wait for few of the others, and everybody's turn
   comes. Nobody overtakes a share that holds nothing yet and whose host has no more than its part.

A budget whose bytes always come back soon, whatever peers do (`is_draining`), needs neither rule 2
nor rule 3: all of it may be held by one, and the line decides who is next.

The machine is pure: no clock, no sockets. What ends a wait is that others give back; who never
gives back is found by `sweeper.py`, which a budget calls when somebody begins to wait.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

HOST_PART_OF_FREE: Final = 2
FREE_PARTS_OF_SHARE: Final = 2
TRUST_FACTOR: Final = 4
TRUSTED_BYTES_FIRST: Final = 65_536
COST_OF_UNTRUSTED: Final = 16
"""What a byte that a share is not trusted with counts in line."""


class Budget:
    """The bytes of one lane.

    Invariant: `shared_bytes` is the sum of what the shares hold beyond their reserves, and never
    above `size_bytes_max`, save by what `Share.force` took.

    Attributes:
        name: Of the lane, for metrics.
        size_bytes_max: Of what is held beyond reserves.
        is_draining: Whether what is held comes back without any peer's help.
        held_bytes: All that the shares hold, reserves included.
        shared_bytes: What they hold beyond their reserves.
        waits: How often a share had to wait; only ever rising.
        refusals: How often a share got nothing and did not wait; only ever rising.
        on_pressure: Called when a share begins to wait, or was refused.
        waiting: The shares that wait, in their order.
        virtual_time: What each share in line would have got by now if all were served at once.
    """

    __slots__ = (
        "_hosts",
        "_is_granting",
        "held_bytes",
        "is_draining",
        "name",
        "on_pressure",
        "refusals",
        "shared_bytes",
        "size_bytes_max",
        "virtual_time",
        "waiting",
        "waits",
    )

    def __init__(self, name: str, size_bytes_max: int, *, is_draining: bool = False) -> None:
        self.name = name
        self.is_draining = is_draining
        self.size_bytes_max = size_bytes_max
        self.held_bytes = 0
        self.shared_bytes = 0
        self.waits = 0
        self.refusals = 0
        self.on_pressure: Callable[[], None] = lambda: None
        self._hosts: dict[str, int] = {}
        self.waiting: list[Share] = []
        self.virtual_time = 0
        self._is_granting = False

    @property
    def free_bytes(self) -> int:
        """What nobody holds."""
        return self.size_bytes_max - self.shared_bytes

    @property
    def is_ample(self) -> bool:
        """Whether at least half is free and nobody waits: holding bytes ahead harms no one."""
        return not self.waiting and 2 * self.shared_bytes <= self.size_bytes_max

    @property
    def waiting_count(self) -> int:
        """Shares that wait."""
        return len(self.waiting)

    def share(self, host: str, reserve_bytes: int = 0) -> Share:
        """What one connection or stream of a host will hold; it holds nothing yet.

        Args:
            host: The peer's address, without its port.
            reserve_bytes: Granted always; the caller bounds how many shares there are.
        """
        return Share(self, host, reserve_bytes)

    # Called by shares only.

    def allowance_of(self, share: Share) -> int:
        """The most that may be added to a share's bytes now, with no regard to the line."""
        free = self.size_bytes_max - self.shared_bytes
        own = max(0, share.held_bytes - share.reserve_bytes)
        in_reserve = max(0, share.reserve_bytes - share.held_bytes)
        if self.is_draining:
            return in_reserve + max(0, free)
        of_host = HOST_PART_OF_FREE * free - self._hosts.get(share.host, 0)
        trusted = min(free // FREE_PARTS_OF_SHARE - own, share.trusted_bytes - own)
        others = free - self.size_bytes_max // 2 - own
        return in_reserve + max(0, min(max(trusted, others), of_host))

    def is_overtaking(self, share: Share, place: int) -> bool:
        """Whether a share that waits is entitled to what comes free before this one."""
        for other in self.waiting:
            if other is share or other.place > place:
                return False
            if self._is_entitled(other):
                return True
        return False

    def _is_entitled(self, share: Share) -> bool:
        if share.held_bytes > share.reserve_bytes:
            return False
        hosts = len(self._hosts) + (share.host not in self._hosts)
        return self._hosts.get(share.host, 0) * hosts <= self.size_bytes_max

    def count(self, share: Share, size_bytes: int) -> None:
        """Add to what a share holds, or take away from it."""
        before = max(0, share.held_bytes - share.reserve_bytes)
        share.held_bytes += size_bytes
        self.held_bytes += size_bytes
        assert share.held_bytes >= 0, "more bytes were returned than taken"
        change = max(0, share.held_bytes - share.reserve_bytes) - before
        if change:
            self.shared_bytes += change
            of_host = self._hosts.get(share.host, 0) + change
            if of_host:
                self._hosts[share.host] = of_host
            else:
                del self._hosts[share.host]

    def grant_waiting(self) -> None:
        """Give shares in line what has come free, in their order."""
        if self._is_granting:
            return
        self._is_granting = True
        try:
            for share in list(self.waiting):
                size_bytes = share.wanted_bytes
                if size_bytes and size_bytes <= self.allowance_of(share):
                    self.virtual_time += share.cost_of(size_bytes) // len(self.waiting)
                    granted = share.leave_line()
                    self.count(share, size_bytes)
                    granted()
                elif self._is_entitled(share):
                    return
        finally:
            self._is_granting = False


class Share:
    """What one connection or stream holds of a budget. Made by `Budget.share`.

    Attributes:
        host: Whose it is.
        reserve_bytes: Its own part, always granted.
        held_bytes: What it holds now.
        trusted_bytes: What it may hold although the lane is more than half full.
        wanted_bytes: What it waits for; 0 while it does not.
        place: In line, the smallest first; of the last wait where it does not wait.
        unsent_bytes: Of `held_bytes`, answers that the peer has not taken; kept by the holder.
        unwritten_bytes: Of these, what the peer could not take yet; kept by the holder.
    """

    __slots__ = (
        "_budget",
        "_granted",
        "held_bytes",
        "host",
        "place",
        "reserve_bytes",
        "trusted_bytes",
        "unsent_bytes",
        "unwritten_bytes",
        "wanted_bytes",
    )

    def __init__(self, budget: Budget, host: str, reserve_bytes: int) -> None:
        self._budget = budget
        self._granted: Callable[[], None] | None = None
        self.wanted_bytes = 0
        self.host = host
        self.reserve_bytes = reserve_bytes
        self.trusted_bytes = TRUSTED_BYTES_FIRST
        self.place = 0
        self.held_bytes = 0
        self.unsent_bytes = 0
        self.unwritten_bytes = 0

    @property
    def budget(self) -> Budget:
        """What it is a share of."""
        return self._budget

    @property
    def size_bytes_max(self) -> int:
        """What it may hold at most, all others idle, to begin with nothing."""
        return self._budget.size_bytes_max // FREE_PARTS_OF_SHARE

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a grant."""
        return self._granted is not None

    @property
    def allowance_bytes(self) -> int:
        """The most that `take` would grant now."""
        budget = self._budget
        if budget.waiting and budget.is_overtaking(self, budget.virtual_time):
            return max(0, self.reserve_bytes - self.held_bytes)
        return budget.allowance_of(self)

    def trust(self, size_bytes: int) -> None:
        """Note that it held so many bytes and finished with them."""
        self.trusted_bytes = max(self.trusted_bytes, TRUST_FACTOR * size_bytes)

    def take(self, size_bytes: int) -> bool:
        """Hold so many more bytes, at once or not at all."""
        budget = self._budget
        held = self.held_bytes + size_bytes
        if held <= self.reserve_bytes:
            self.held_bytes = held
            budget.held_bytes += size_bytes
            return True
        if size_bytes > budget.allowance_of(self) or (
            budget.waiting and budget.is_overtaking(self, self._place_for(size_bytes))
        ):
            return False
        self._hold(size_bytes)
        return True

    def extend(self, size_bytes: int) -> bool:
        """Hold so many more bytes for what was granted and turned out larger: ahead of the line."""
        if size_bytes > self._budget.allowance_of(self):
            return False
        self._hold(size_bytes)
        return True

    def refuse(self) -> None:
        """Note that something was not done for want of bytes."""
        self._budget.refusals += 1
        self._budget.on_pressure()

    def force(self, size_bytes: int) -> None:
        """Hold so many more bytes, which exist already; the caller bounds them."""
        self._hold(size_bytes)

    def _hold(self, size_bytes: int) -> None:
        """More bytes of a host entitle it to less, so whoever stood behind it may have his."""
        budget = self._budget
        budget.count(self, size_bytes)
        if budget.waiting:
            budget.grant_waiting()

    def wait(self, size_bytes: int, granted: Callable[[], None]) -> None:
        """Wait for what `take` did not grant; one wait at a time.

        Args:
            size_bytes: At most half of the budget, or the wait never ends.
            granted: Called once, when the bytes were taken for this share.
        """
        assert self._granted is None, "one wait at a time"
        budget = self._budget
        self.place = self._place_for(size_bytes)
        self.wanted_bytes = size_bytes
        self._granted = granted
        insort(budget.waiting, self, key=_place)
        budget.waits += 1
        budget.on_pressure()

    def stop_waiting(self) -> None:
        """Wait no longer; does nothing where nothing is waited for."""
        if self._granted is not None:
            self.leave_line()
            self._budget.grant_waiting()

    def give_back(self, size_bytes: int) -> None:
        """Hold so many bytes less; shares that wait may be granted theirs within the call."""
        budget = self._budget
        if self.held_bytes <= self.reserve_bytes:
            self.held_bytes -= size_bytes
            budget.held_bytes -= size_bytes
            assert self.held_bytes >= 0, "more bytes were returned than taken"
        else:
            budget.count(self, -size_bytes)
        if budget.waiting:
            budget.grant_waiting()

    def leave_line(self) -> Callable[[], None]:
        """Stop waiting; returns what a grant calls."""
        granted = self._granted
        assert granted is not None
        self._granted = None
        self.wanted_bytes = 0
        self._budget.waiting.remove(self)
        return granted

    def cost_of(self, size_bytes: int) -> int:
        """What so many bytes count in line."""
        is_trusted = size_bytes <= self.trusted_bytes
        return size_bytes if is_trusted else COST_OF_UNTRUSTED * size_bytes

    def _place_for(self, size_bytes: int) -> int:
        """The place in line of a share that wants so many bytes now."""
        if self._granted is not None:
            return self.place
        return max(self._budget.virtual_time, self.place) + self.cost_of(size_bytes)


def _place(share: Share) -> int:
    return share.place
