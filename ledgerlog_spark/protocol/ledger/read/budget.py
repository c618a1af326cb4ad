"""The limits of a reader, such as the memory for received entries and for pending answers.

A bookie's answer has at least one entry, and an entry can be as large as a frame. So for the limit
of memory (`size_bytes_max`), each pending request counts as a whole frame. For the limit of reading
ahead (`size_bytes_ahead_max`), a request counts as the expected size of its answer. With entries of
usual sizes, a reader reaches only the limit of reading ahead.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, LedgerMetadata
from ledgerlog_spark.protocol.ledger.entry_batch import EntryBatch
from ledgerlog_spark.protocol.ledger.read_room import HEDGES_SPARED, ReadPlace
from ledgerlog_spark.retry import RetryPolicy

FIRST_BATCH_ENTRIES = 64
"""Number of entries in a batch while the size of entries is unknown."""

FIRST_SIZE_BYTES = 64 << 10
"""Expected size of one entry while the size of entries is unknown."""

STORED_BESIDE_PAYLOAD_SIZE_BYTES = 56
"""Size of an entry in a batch's answer without the payload: length, header, largest digest."""


OVERLOAD = RetryPolicy(first_delay_ms=50, delay_max_ms=1_000, attempts_max=20)


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """Limits of a reader.

    Attributes:
        entries_ahead_max: Maximum number of entries to read ahead of the application.
        size_bytes_ahead_max: Maximum sum of two sizes: the payload that the application has not
            taken yet, and the expected answers to pending requests.
        size_bytes_max: Maximum number of payload bytes in memory, even for the largest entries. A
            request is not sent if its answer might exceed the limit. But a reader without entries
            in memory may always request one entry.
        batch_entries_max: Maximum number of entries in one answer. The value 1 turns batches off.
        batch_size_bytes_max: Maximum size of one answer.
        batches_in_flight_max: Maximum number of pending requests for batches.
        singles_in_flight_max: Maximum number of pending requests for single entries.
        hedge_delay_ms: Delay after which a request without an answer is also sent to another
            bookie. The actual delay is one to two times as long.
        reloads_max: Maximum number of reloads of the metadata for one entry.
        overload: Number and delays (about 15 s in total) of the retries after a bookie answered
            that it is busy.
    """

    entries_ahead_max: int = 16_384
    size_bytes_ahead_max: int = 16 << 20
    size_bytes_max: int = 64 << 20
    batch_entries_max: int = 1_024
    batch_size_bytes_max: int = 1 << 20
    batches_in_flight_max: int = 6
    singles_in_flight_max: int = 256
    hedge_delay_ms: int = 500
    reloads_max: int = 3
    overload: RetryPolicy = OVERLOAD


class ReadBudget:
    """Decides how much a reader may request, from the sizes of the entries received so far."""

    def __init__(
        self, settings: ReaderSettings, metadata: LedgerMetadata, place: ReadPlace | None = None
    ) -> None:
        """Make an empty budget.

        The metadata of a closed ledger gives the average size of entries.
        """
        self.held_size_bytes = 0  # received payload that the application has not taken
        self._settings = settings
        self._place = place
        self._usual_size_bytes = _usual_size_bytes(metadata)
        self._likely_size_bytes = max(FIRST_SIZE_BYTES, self._usual_size_bytes)

    def keep(self, entries: EntryBatch) -> None:
        """Count received entries as held until `take` is called. Adjust the expected entry size."""
        self.held_size_bytes += entries.size_bytes
        largest = max(map(len, entries.payloads))
        # The estimate rises immediately and falls slowly, because too many requests cost memory,
        # and too few requests cost only time.
        self._likely_size_bytes = max(largest, (7 * self._likely_size_bytes + largest) // 8)
        average = -(-entries.size_bytes // len(entries))
        usual = self._usual_size_bytes or average
        self._usual_size_bytes = (3 * usual + average + 3) // 4

    def take(self, size_bytes: int) -> None:
        """Record that the application took `size_bytes` of payload."""
        self.held_size_bytes -= size_bytes

    def has_room(self, batches: int, singles: int, reads: int) -> bool:
        """Whether one more request may be sent in addition to the pending requests."""
        limits = self._settings
        likely = max(limits.batch_size_bytes_max, self._likely_size_bytes)
        expected = batches * likely + reads * self._likely_size_bytes
        return (
            batches < limits.batches_in_flight_max
            and singles < limits.singles_in_flight_max
            and self.held_size_bytes + expected < limits.size_bytes_ahead_max
            and self._fits(batches + reads, HEDGES_SPARED)
        )

    def has_room_to_hedge(self, requests: int) -> bool:
        """Whether a slow request may also be sent to another bookie.

        `requests` is the number of pending requests.
        """
        return self._fits(requests, 0)

    @property
    def may_exceed(self) -> bool:
        """Whether a reader without entries in memory may send one request without room for it.

        In a `ReadRoom`, only the reader that has the turn may send this request.
        """
        return self._place is None or self._place.has_turn

    def reserved_size_bytes(self, requests: int) -> int:
        """Return the held bytes plus the maximum payload bytes of `requests` pending requests."""
        return self.held_size_bytes + requests * FRAME_SIZE_BYTES_MAX

    @property
    def batch_entries(self) -> int:
        """Number of entries in the next batch, estimated so that the batch fits into one answer.

        Entries that do not fit are requested later.
        """
        limits = self._settings
        if not self._usual_size_bytes:
            return min(limits.batch_entries_max, FIRST_BATCH_ENTRIES)
        stored = self._usual_size_bytes + STORED_BESIDE_PAYLOAD_SIZE_BYTES
        return max(1, min(limits.batch_entries_max, limits.batch_size_bytes_max // stored))

    def _fits(self, requests: int, spared: int) -> bool:
        """Whether the pending answers and one more answer would fit if each were a whole frame."""
        size_bytes = self.reserved_size_bytes(requests + 1)
        spared_size_bytes = spared * FRAME_SIZE_BYTES_MAX
        if size_bytes + spared_size_bytes > self._settings.size_bytes_max:
            return False
        return self._place is None or self._place.fits(size_bytes, spared_size_bytes)


class EntriesToRequest:
    """The ranges of entries that are still to be requested or requested again, in rising order."""

    def __init__(self, first_entry_id: int, last_entry_id: int) -> None:
        self._ranges = [(first_entry_id, last_entry_id)]

    @property
    def first(self) -> int | None:
        """The first entry to request; None when no entry is left to request."""
        return self._ranges[0][0] if self._ranges else None

    @property
    def last_of_first_range(self) -> int:
        """The last entry (inclusive) of the first range. Valid only while an entry is left."""
        return self._ranges[0][1]

    def take(self, last_entry_id: int) -> None:
        """Record that the first range was requested up to and including `last_entry_id`."""
        _, last = self._ranges.pop(0)
        if last_entry_id < last:
            self._ranges.insert(0, (last_entry_id + 1, last))

    def put_back(self, first_entry_id: int, last_entry_id: int) -> None:
        """Add entries that must be requested later. No range may contain these entries already."""
        if first_entry_id <= last_entry_id:
            insort(self._ranges, (first_entry_id, last_entry_id))


def _usual_size_bytes(metadata: LedgerMetadata) -> int:
    """Return the average payload bytes of an entry of a closed ledger, rounded up; 0 if unknown."""
    if not metadata.is_closed or metadata.last_entry_id < 0:
        return 0
    return -(-metadata.length // (metadata.last_entry_id + 1))
