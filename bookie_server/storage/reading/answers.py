"""Answers reads. An answer may wait for a fence, for the journal, or for the device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from bookie_server.core.ledger_gate import (
    admit_read,
    admit_slice_read,
    barrier_of,
    code_of_failure,
)
from bookie_server.core.requests import (
    OnRead,
    OnReadBatch,
    OnReadSome,
    StoredBatchRead,
    StoredRead,
    StoredReads,
    StoredSliceRead,
)
from bookie_server.errors import (
    CorruptRecordError,
    FreedFileError,
    StorageError,
    unknown_entries,
)
from bookie_server.ports import Future
from bookie_server.storage.fences import Fences
from bookie_server.storage.files.entry_log_file import Need
from bookie_server.storage.journal import Journal
from bookie_server.storage.limbo.denials import Denials
from bookie_server.storage.reading.reads import Reader
from bookie_server.storage.reading.stretches import Results, Stretch, read_stretch
from bookie_server.storage.shared import Shared
from bookie_server.storage.spans import Spans
from bookie_server.storage.wake_ups import resolve
from ledgerlog_spark.model import NO_ENTRY, Code

STRETCHES_PER_CALL_MAX = 64


@dataclass(slots=True)
class FailedRead:
    """Reports that a read has failed, and returns the code of the answer."""

    shared: Shared
    ledger_id: int
    entry_id: int
    peer: object

    def code_of(self, error: StorageError) -> Code:
        """Report an error, and return the code of the answer."""
        self.shared.on_failed_read(self.ledger_id, self.entry_id, self.peer, error)
        if isinstance(error, CorruptRecordError) and not isinstance(error, FreedFileError):
            self.shared.on_damaged_read(self.ledger_id, self.entry_id, error)
        return code_of_failure(error)

    def code_unless_certain(self, code: Code) -> Code:
        """Return the code if no entry was found. Report a failure if the entry may be stored."""
        if code is not Code.IO_ERROR:
            return code
        return self.code_of(unknown_entries(self.ledger_id))


class ReadAnswers:
    """Answers reads with a `Reader`. If a request has a fence key, the ledger is fenced first."""

    def __init__(
        self, shared: Shared, journal: Journal, reader: Reader, fences: Fences, denials: Denials
    ) -> None:
        self._shared = shared
        self._denials = denials
        self._journal = journal
        self._reader = reader
        self._fences = fences
        self._states = shared.states

    def read(self, request: StoredRead, on_done: OnRead) -> None:
        """Read one stored entry. If the request has a key, first fence the ledger."""
        code = admit_read(request)
        if code is not None:
            on_done(code, None)
        elif request.fence_key is None and not request.is_recovery:
            self._answer(request, on_done)
        else:
            self._when_safe(
                request.ledger_id,
                request.fence_key,
                lambda code: self._answer(request, on_done) if code is Code.OK
                else on_done(code, None),
            )  # fmt: skip

    def read_together(self, request: StoredReads, on_some: OnReadSome) -> int:
        """Read the requested entries from the first on, up to a limit, and return their number.

        Each stretch of entries has a reading of its own, so a stretch that is read from the device
        does not delay the other stretches. At most `STRETCHES_PER_CALL_MAX` stretches are read,
        because each stretch needs a search. After a stretch that reaches `size_bytes_max` bytes, no
        further stretch is read.
        """
        ledger_id, ids = request.ledger_id, request.entry_ids
        state = self._states.get(ledger_id)
        if state is None:
            self._deny_all(request, on_some)
            return len(ids)
        done, left_bytes = 0, request.size_bytes_max
        for _ in range(STRETCHES_PER_CALL_MAX):
            if done == len(ids) or (done and left_bytes <= 0):
                break
            stretch = Stretch(ledger_id, ids, done, left_bytes)
            self._read_stretch(stretch, request.peer, on_some)
            stretch.is_fixed = True
            done += stretch.count
            left_bytes -= stretch.size_bytes
        return done

    def _deny_all(self, request: StoredReads, on_some: OnReadSome) -> None:
        """Answer reads of a ledger without a state."""
        ids = request.entry_ids
        failure = FailedRead(self._shared, request.ledger_id, ids[0], request.peer)

        def read_again() -> None:
            for entry_id in ids:
                self._read_one(request.ledger_id, entry_id, request.peer, on_some)

        self._denials.deny(
            request.ledger_id,
            lambda code: on_some(failure.code_unless_certain(code), ids, ()),
            read_again,
        )

    def _read_one(self, ledger_id: int, entry_id: int, peer: object, on_some: OnReadSome) -> None:
        """Read an entry again, after the ledger's record was compared with the loss."""

        def on_done(code: Code, entry: bytes | None) -> None:
            on_some(code, (entry_id,), () if entry is None else (entry,))

        request = StoredRead(ledger_id, entry_id, peer=peer)
        self._answer(request, on_done, may_compare=False)

    def _read_stretch(self, stretch: Stretch, peer: object, on_some: OnReadSome) -> None:
        ledger_id = stretch.ledger_id
        failure_of = partial(FailedRead, self._shared, ledger_id, peer=peer)
        was_certain = self._denials.may_deny(ledger_id)

        def deny(entry_id: int) -> None:
            failure = failure_of(entry_id)
            self._denials.deny(
                ledger_id,
                lambda code: on_some(failure.code_unless_certain(code), (entry_id,), ()),
                lambda: self._read_one(ledger_id, entry_id, peer, on_some),
                was_certain=was_certain,
            )

        def on_result(entries: Results) -> None:
            ids = stretch.entry_ids
            if all(type(entry) is bytes for entry in entries):
                on_some(Code.OK, ids, cast("Sequence[bytes]", entries))
                return
            for entry_id, entry in zip(ids, entries, strict=True):
                if isinstance(entry, bytes):
                    on_some(Code.OK, (entry_id,), (entry,))
                elif entry is None:
                    deny(entry_id)
                else:
                    on_some(failure_of(entry_id).code_of(entry), (entry_id,), ())

        def on_error(error: StorageError) -> None:
            ids = stretch.entry_ids
            on_some(failure_of(ids[0]).code_of(error), ids, ())

        self._reader.readings.run(read_stretch(self._reader, stretch), on_result, on_error)

    def read_batch(self, request: StoredBatchRead, on_done: OnReadBatch) -> None:
        """Read as many consecutive stored entries as fit into the answer.

        If the answer has fewer entries than requested, the next entry may still exist.
        """
        code = admit_read(request)
        if code is not None:
            on_done(code, ())
        elif request.fence_key is None:
            self._answer_batch(request, on_done)
        else:
            self._when_safe(
                request.ledger_id,
                request.fence_key,
                lambda code: self._answer_batch(request, on_done) if code is Code.OK
                else on_done(code, ()),
            )  # fmt: skip

    def read_slices(self, request: StoredSliceRead, on_done: OnReadBatch) -> None:
        """Read byte ranges of as many stored entries as fit into the answer.

        If the answer has fewer entries than requested, the next entry may still exist.
        """
        code = admit_slice_read(request)
        if code is not None:
            on_done(code, ())
            return
        entry_id = request.entries[0][0]
        failure = FailedRead(self._shared, request.ledger_id, entry_id, request.peer)
        self._answer_list(lambda: self._reader.read_slices(request), failure, on_done)

    async def entries_held(self, ledger_id: int, count_max: int) -> Spans:
        """Return the first and the last id of each stretch of a ledger's stored entries.

        Only durable entries are listed, because a replication worker deletes a mark after it has
        read such lists. The stretches are in ascending order. Raise TooManyRangesError if there are
        more than `count_max` stretches. Raise StorageError if the ledger may have had more entries.
        """
        if self._denials.must_compare(ledger_id):
            compared: Future[None] = self._shared.tasks.future()
            self._denials.compare(ledger_id, partial(resolve, compared, None))
            await compared
        if self._denials.code(ledger_id) is Code.IO_ERROR:
            raise unknown_entries(ledger_id)
        spans = await self._reader.held(ledger_id, count_max)
        durable: Future[Code] = self._shared.tasks.future()
        self._when_safe(ledger_id, None, partial(resolve, durable))
        is_durable = await durable is Code.OK
        if not is_durable or self._denials.code(ledger_id) is Code.IO_ERROR:
            raise unknown_entries(ledger_id)
        return spans

    def _when_safe(
        self, ledger_id: int, fence_key: bytes | None, then: Callable[[Code], None]
    ) -> None:
        """Call `then` after all earlier adds are durable. If a key is given, first set a fence."""
        state = self._states.get(ledger_id)
        if fence_key is not None:
            self._fences.fence(ledger_id, fence_key, then)
        elif state is not None:
            self._journal.when_durable(barrier_of(state), then)
        else:
            then(Code.OK)

    def _answer(self, request: StoredRead, on_done: OnRead, *, may_compare: bool = True) -> None:
        ledger_id, entry_id = request.ledger_id, request.entry_id
        state = self._states.get(ledger_id)
        was_certain = self._denials.may_deny(ledger_id)
        if state is not None and entry_id == NO_ENTRY:
            # An answer with the largest id denies that entries with larger ids exist, so it needs
            # the same certainty as the answer NO_ENTRY.
            entry_id = state.last_entry_id if was_certain else NO_ENTRY
        failure = FailedRead(self._shared, ledger_id, entry_id, request.peer)
        again = partial(self._answer, request, on_done, may_compare=False) if may_compare else None

        def on_entry(entry: bytes | None) -> None:
            if entry is not None:
                on_done(Code.OK, entry)
                return
            self._denials.deny(
                ledger_id,
                lambda code: on_done(failure.code_unless_certain(code), None),
                again,
                was_certain=was_certain,
            )

        if state is None or entry_id == NO_ENTRY:
            on_entry(None)
            return
        reading = self._reader.read_entry(ledger_id, entry_id)
        self._reader.readings.run(
            reading, on_entry, lambda error: on_done(failure.code_of(error), None)
        )

    def _answer_batch(self, request: StoredBatchRead, on_done: OnReadBatch) -> None:
        failure = FailedRead(self._shared, request.ledger_id, request.first_entry_id, request.peer)
        self._answer_list(lambda: self._reader.read_batch(request), failure, on_done)

    def _answer_list(
        self,
        begin: Callable[[], Generator[Need | None, bytes, list[bytes]]],
        failure: FailedRead,
        on_done: OnReadBatch,
        *,
        may_compare: bool = True,
    ) -> None:
        was_certain = self._denials.may_deny(failure.ledger_id)
        again = partial(self._answer_list, begin, failure, on_done, may_compare=False)

        def on_entries(entries: list[bytes]) -> None:
            if entries:
                on_done(Code.OK, entries)
                return
            self._denials.deny(
                failure.ledger_id,
                lambda code: on_done(failure.code_unless_certain(code), ()),
                again if may_compare else None,
                was_certain=was_certain,
            )

        self._reader.readings.run(
            begin(), on_entries, lambda error: on_done(failure.code_of(error), ()), is_batch=True
        )
