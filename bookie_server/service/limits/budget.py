"""Divides a limited number of bytes among peers, so that no peer waits for bytes forever.

A `Budget` is the limit of one lane (received bytes, answers to reads, recovery and fencing). A
`Share` is the part of a budget that one connection or stream holds. The rules:

1. A share has a small reserve of its own. Bytes within the reserve are always granted.
2. Beyond the reserve, a request is granted only if the share then holds at most half of the bytes
   that were free before the request. So a single large request gets at most half of the lane. With
   small requests, a single share gets at most 1/3 of the lane, and each share of n gets at most
   1/(n + 2). A request is also granted only if all shares of its host (an address) then together
   hold at most twice the bytes that were free before it. So with small requests, a third of the
   lane is left to other hosts.
3. The trusted size of a share is four times the largest number of bytes that the share held and
   gave back. A share gets more than its trusted size only while the lane is less than half full.
4. A request that does not fit waits in line. The line uses fair queueing: the place of a share is
   the virtual time plus the cost of the requested bytes. If a request is larger than the trusted
   size, each of its bytes costs more. So small and trusted requests wait for few other requests,
   and every share gets bytes after some time. No other share may overtake a share that meets two
   conditions: the share holds nothing beyond its reserve, and its host holds at most its equal part
   (the lane, divided by the number of hosts).

If `is_draining` is set for a budget, its bytes are given back soon, without any action of peers.
Rules 2 and 3 do not apply to such a budget: one share may hold all bytes of the budget, and only
the line decides which share gets bytes.

This module has no clock and no sockets. A wait ends when other shares give bytes back. When a share
begins to wait, the budget calls `on_pressure`. The sweeper (`sweeper.py`) then closes connections
that hold bytes of the lane, but make no progress.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

HOST_PART_OF_FREE: Final = 2
FREE_PARTS_OF_SHARE: Final = 2
TRUST_FACTOR: Final = 4
TRUSTED_BYTES_FIRST: Final = 65_536
COST_OF_UNTRUSTED: Final = 16  # cost of each byte of a request larger than the trusted size


@dataclass(slots=True, eq=False)
class Budget:
    """The bytes of one lane.

    Invariant: `shared_bytes` is the sum of the bytes of all shares, without the bytes within their
    reserves. Only `Share.force` can make `shared_bytes` larger than `size_bytes_max`.
    """

    name: str  # name in metrics
    size_bytes_max: int  # limit of `shared_bytes`
    # Whether the bytes are given back soon, without any action of peers.
    is_draining: bool = field(default=False, kw_only=True)
    held_bytes: int = field(default=0, init=False)  # bytes of all shares, including their reserves
    shared_bytes: int = field(default=0, init=False)
    waits: int = field(default=0, init=False)
    refusals: int = field(default=0, init=False)  # number of refused requests
    # Called when a share begins to wait, or when a request is refused.
    on_pressure: Callable[[], None] = field(default=lambda: None, init=False)
    waiting: list[Share] = field(default_factory=list, init=False)  # in order of `place`
    # Time of the fair queue: each grant to a waiting share adds the cost of its bytes, divided by
    # the number of shares that waited at that moment.
    virtual_time: int = field(default=0, init=False)
    _hosts: dict[str, int] = field(default_factory=dict, init=False)
    _is_granting: bool = field(default=False, init=False)

    @property
    def free_bytes(self) -> int:
        """Number of bytes that no share holds."""
        return self.size_bytes_max - self.shared_bytes

    @property
    def is_ample(self) -> bool:
        """Whether at least half of the bytes are free and no share waits."""
        return not self.waiting and 2 * self.shared_bytes <= self.size_bytes_max

    @property
    def waiting_count(self) -> int:
        """Number of shares that wait."""
        return len(self.waiting)

    def share(self, host: str, reserve_bytes: int = 0) -> Share:
        """Return an empty share for a peer's address. The caller limits the number of shares."""
        return Share(self, host, reserve_bytes)

    # Called by shares only.

    def allowance_of(self, share: Share) -> int:
        """Return the number of bytes that a share may take now if no other share waits."""
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
        """Return whether a share at `place` would overtake a share that rule 4 protects."""
        for other in self.waiting:
            if other is share or other.place > place:
                return False
            if self._is_first(other):
                return True
        return False

    def _is_first(self, share: Share) -> bool:
        """Return whether the shares after `share` in line have to wait for it (rule 4)."""
        if share.held_bytes > share.reserve_bytes:
            return False
        hosts = len(self._hosts) + (share.host not in self._hosts)
        return self._hosts.get(share.host, 0) * hosts <= self.size_bytes_max

    def count(self, share: Share, size_bytes: int) -> None:
        """Add `size_bytes`, which may be negative, to the bytes that a share holds."""
        before = max(0, share.held_bytes - share.reserve_bytes)
        share.held_bytes += size_bytes
        self.held_bytes += size_bytes
        assert share.held_bytes >= 0, "more bytes were given back than taken"
        change = max(0, share.held_bytes - share.reserve_bytes) - before
        if change:
            self.shared_bytes += change
            of_host = self._hosts.get(share.host, 0) + change
            if of_host:
                self._hosts[share.host] = of_host
            else:
                del self._hosts[share.host]

    def grant_waiting(self) -> None:
        """Grant free bytes to the waiting shares, in the order of the line."""
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
                elif self._is_first(share):
                    return
        finally:
            self._is_granting = False


@dataclass(slots=True, eq=False)
class Share:
    """The bytes of a budget that one connection or stream holds. `Budget.share` creates it."""

    budget: Budget
    host: str  # the peer's address, without its port
    reserve_bytes: int  # bytes that are always granted
    # Maximum size of the share while the lane is more than half full.
    trusted_bytes: int = field(default=TRUSTED_BYTES_FIRST, init=False)
    held_bytes: int = field(default=0, init=False)
    wanted_bytes: int = field(default=0, init=False)  # 0 while the share does not wait
    place: int = field(default=0, init=False)  # place in line, smallest first; kept after a wait
    # The connection sets the next two fields. They count the bytes of answers that the peer has not
    # taken, and the bytes of answers that are not yet written to the socket.
    unsent_bytes: int = field(default=0, init=False)
    unwritten_bytes: int = field(default=0, init=False)
    _granted: Callable[[], None] | None = field(default=None, init=False)

    @property
    def size_bytes_max(self) -> int:
        """Maximum number of bytes that the share can hold while all other shares hold nothing."""
        return self.budget.size_bytes_max // FREE_PARTS_OF_SHARE

    @property
    def is_waiting(self) -> bool:
        """Whether the share waits for a grant."""
        return self._granted is not None

    @property
    def allowance_bytes(self) -> int:
        """Maximum number of bytes that `take` would grant now."""
        budget = self.budget
        if budget.waiting and budget.is_overtaking(self, budget.virtual_time):
            return max(0, self.reserve_bytes - self.held_bytes)
        return budget.allowance_of(self)

    def trust(self, size_bytes: int) -> None:
        """Increase the trusted size, because the share held `size_bytes` and gave them back."""
        self.trusted_bytes = max(self.trusted_bytes, TRUST_FACTOR * size_bytes)

    def take(self, size_bytes: int) -> bool:
        """Take all of `size_bytes` or nothing, and return whether the bytes were granted."""
        budget = self.budget
        held = self.held_bytes + size_bytes
        if held <= self.reserve_bytes:
            self.held_bytes = held
            budget.held_bytes += size_bytes
            return True
        if size_bytes > budget.allowance_of(self) or (
            budget.waiting and budget.is_overtaking(self, self._place_for(size_bytes))
        ):
            return False
        self.force(size_bytes)
        return True

    def extend(self, size_bytes: int) -> bool:
        """Take more bytes for a granted request, without a wait; return whether they were taken."""
        if size_bytes > self.budget.allowance_of(self):
            return False
        self.force(size_bytes)
        return True

    def refuse(self) -> None:
        """Count a request that was refused because too few bytes were free."""
        self.budget.refusals += 1
        self.budget.on_pressure()

    def force(self, size_bytes: int) -> None:
        """Take `size_bytes` more, even above the limit, because the bytes are already in memory.

        The caller limits the number of bytes. After this call, the host of this share may hold more
        than its equal part of the lane (rule 4). In that case, shares of other hosts may overtake
        the waiting shares of this host.
        """
        budget = self.budget
        budget.count(self, size_bytes)
        if budget.waiting:
            budget.grant_waiting()

    def wait(self, size_bytes: int, granted: Callable[[], None]) -> None:
        """Wait for bytes that `take` did not grant. A share has at most one wait at a time.

        A wait for more than half of the budget never ends, unless the budget `is_draining`.
        `granted` is called once, after the bytes were taken.
        """
        assert self._granted is None, "one wait at a time"
        budget = self.budget
        self.place = self._place_for(size_bytes)
        self.wanted_bytes = size_bytes
        self._granted = granted
        insort(budget.waiting, self, key=attrgetter("place"))
        budget.waits += 1
        budget.on_pressure()

    def stop_waiting(self) -> None:
        """End a wait, if there is one."""
        if self._granted is not None:
            self.leave_line()
            self.budget.grant_waiting()

    def give_back(self, size_bytes: int) -> None:
        """Give `size_bytes` back. This may grant bytes to shares that wait."""
        budget = self.budget
        if self.held_bytes <= self.reserve_bytes:
            self.held_bytes -= size_bytes
            budget.held_bytes -= size_bytes
            assert self.held_bytes >= 0, "more bytes were given back than taken"
        else:
            budget.count(self, -size_bytes)
        if budget.waiting:
            budget.grant_waiting()

    def leave_line(self) -> Callable[[], None]:
        """Stop the wait of this share, and return its callback `granted`."""
        granted = self._granted
        assert granted is not None
        self._granted = None
        self.wanted_bytes = 0
        self.budget.waiting.remove(self)
        return granted

    def cost_of(self, size_bytes: int) -> int:
        """Return how far a request of `size_bytes` moves the next place in line back."""
        is_trusted = size_bytes <= self.trusted_bytes
        return size_bytes if is_trusted else COST_OF_UNTRUSTED * size_bytes

    def _place_for(self, size_bytes: int) -> int:
        """Return the place in line for a new request of `size_bytes`."""
        if self._granted is not None:
            return self.place
        return max(self.budget.virtual_time, self.place) + self.cost_of(size_bytes)
