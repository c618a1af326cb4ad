"""A batch of entries that a reader has requested."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class BatchInFlight:
    """Consecutive entries that are requested together.

    One bookie gets the first request. If this bookie fails or is slow, the next bookie gets a
    request for the remaining entries.
    """

    next_entry_id: int  # the first entry that was not received yet
    last_entry_id: int  # inclusive
    order: tuple[int, ...] = ()  # indexes of bookies, in the order of the attempts
    tried: int = 0  # number of indexes tried
    outstanding: int = 0  # number of requests without an answer
    is_slow: bool = False

    @property
    def is_done(self) -> bool:
        """Whether no entry of the batch is left to receive."""
        return self.next_entry_id > self.last_entry_id
