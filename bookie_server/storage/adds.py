"""Handles adds from the request to the journal, including repeated adds and the metadata check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bookie_server.core import doubt as rules
from bookie_server.core.doubt import AddCheck
from bookie_server.core.ledger_gate import Wait, admit_add, code_of_failure
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.record import FLAG_RECOVERY_ADD, NO_KEY, JournalRecord, JournalRecordKind
from bookie_server.core.requests import OnAdd, StoredAdd, inspect_add
from bookie_server.errors import CorruptRecordError, StorageError, TooManyFilesError
from bookie_server.ports import Future, Standing
from bookie_server.storage.fences import Fences
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.files.room import CONTROL_RECORD_SIZE
from bookie_server.storage.journal import Journal
from bookie_server.storage.limbo.denials import Denials
from bookie_server.storage.limbo.record_checks import check_in_time
from bookie_server.storage.reading.reads import Reader
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import guarded, resolve
from ledgerlog_spark.model import Code

COMPARED_BYTES = 32_768  # comparing this number of bytes takes as long as reading one more entry


class AddPath:
    """Admits adds and submits them to the journal."""

    def __init__(
        self,
        shared: Shared,
        keeper: FileKeeper,
        journal: Journal,
        reader: Reader,
        fences: Fences,
        denials: Denials,
    ) -> None:
        self._shared = shared
        self._denials = denials
        self._keeper = keeper
        self._journal = journal
        self._reader = reader
        self._fences = fences
        self._tasks = shared.tasks
        self._health = shared.health
        self._states = shared.states
        self._checks: dict[int, list[Callable[[Standing], None]]] = {}

    def add(self, request: StoredAdd, on_done: OnAdd) -> None:
        """Store all entries of a run of entries, or none, and call `on_done` with a code.

        The code OK means that the run, or the stored copy of a repeated run, is durable. FENCED,
        UNAUTHORIZED, READ_ONLY, BUSY and BAD_REQUEST mean that nothing changed. After IO_ERROR, the
        result is unknown. The buffers of `request` must not change before `on_done` is called.
        """
        lac = inspect_add(request)
        if lac is None:
            on_done(Code.BAD_REQUEST)
        else:
            self._admit(request, lac, on_done)

    def add_together(self, request: StoredAdd, on_done: OnAdd) -> bool:
        """Store a run of entries, each of which was sent as one add, and return True.

        If the bookie must refuse one of these adds, defer it, or compare it with stored entries, do
        nothing and return False. The caller then calls `add` for each of these adds.
        """
        lac = inspect_add(request)
        state = self._states.get(request.ledger_id)
        if lac is None or self._health.is_closing or self._verdict(request, state) is not None:
            return False
        if state is not None and request.entry_ids[0] <= state.last_accepted_id:
            return False
        self._store(request, lac, on_done)
        return True

    def _verdict(self, request: StoredAdd, state: HeldLedger | None) -> Code | Wait | None:
        """Return None to accept an add, a code to refuse it, or a `Wait` to defer it."""
        health = self._health
        health.has_room = self._keeper.has_room_for(
            2 * (len(request.body) + CONTROL_RECORD_SIZE) + 12 * len(request.lengths)
        )
        return admit_add(request, state, health, self._free_bytes)

    def _admit(
        self, request: StoredAdd, lac: int, on_done: OnAdd, *, is_compared: bool = False
    ) -> None:
        """Store, refuse or defer an add.

        After each wait, this method is called again, because a fence may have been set meanwhile.
        """
        health = self._health
        state = self._states.get(request.ledger_id)
        size = len(request.body)
        verdict = self._verdict(request, state)
        if health.is_closing:
            on_done(Code.IO_ERROR)
        elif verdict is Wait.METADATA_CHECK:
            health.in_flight_bytes += size
            self._check_first(request, lac, guarded(self._tasks, on_done))
        elif verdict is not None:
            on_done(verdict)
        elif state is None or is_compared or request.entry_ids[0] > state.last_accepted_id:
            self._store(request, lac, on_done)
        else:
            health.in_flight_bytes += size
            comparing = self._compare_first(request, lac, guarded(self._tasks, on_done))
            self._tasks.spawn("add of held entries", comparing)

    @property
    def _free_bytes(self) -> int:
        return self._shared.settings.in_flight_bytes_max - self._health.in_flight_bytes

    def _store(self, request: StoredAdd, lac: int, on_done: OnAdd) -> None:
        ids = request.entry_ids
        # The request of a repair has no key if the bookie has lost the key of the ledger.
        is_keyless = request.is_recovery and request.master_key == NO_KEY
        key = None if is_keyless else request.master_key
        state = self._shared.state_of(request.ledger_id, key)
        record = JournalRecord(
            JournalRecordKind.RUN,
            request.ledger_id,
            entry_ids=ids,
            lengths=request.lengths,
            body=request.body,
            master_key=request.master_key,
            flags=FLAG_RECOVERY_ADD if request.is_recovery else 0,
        )
        record.last_add_confirmed = lac
        record.on_done = on_done
        state.last_accepted_id = max(state.last_accepted_id, ids[-1])
        # An add ends the release of its ledger, so that the entries stay.
        state.added_in = self._health.add_period
        state.end_release()
        self._health.in_flight_bytes += record.body_size
        state.last_ticket = self._journal.submit(record)

    def _report(self, request: StoredAdd, error: StorageError) -> None:
        ledger_id, entry_id = request.ledger_id, request.entry_ids[0]
        self._shared.on_failed_add(ledger_id, entry_id, request.peer, error)

    # Repeats and overlaps.

    async def _compare_first(self, request: StoredAdd, lac: int, on_done: OnAdd) -> None:
        """Answer OK if the stored entries are the same as the run. Otherwise store the run."""
        state = self._shared.state_of(request.ledger_id)
        durable: Future[Code] = self._tasks.future()
        # Wait first, because reads find queued copies of the entries only after the copies are
        # durable.
        covered = state.last_ticket
        self._journal.when_durable(covered, partial(resolve, durable))
        await durable
        try:
            is_repeated, is_overlap = await self._reader.readings.compare(
                self._reader.compare(request),
                max(len(request.entry_ids), len(request.body) // COMPARED_BYTES),
            )
        except StorageError as error:
            self._health.in_flight_bytes -= len(request.body)
            is_unreadable = request.is_recovery and not isinstance(error, TooManyFilesError)
            if isinstance(error, CorruptRecordError) or is_unreadable:
                # The stored copy is damaged, or a repair finds that the device cannot read the
                # stored copy. In both cases, the new copy replaces the stored copy.
                self._admit(request, lac, on_done, is_compared=True)
            else:
                self._report(request, error)
                on_done(code_of_failure(error))
            return
        self._health.in_flight_bytes -= len(request.body)
        # While the ledger is being released, store even a repeated run, to end the release.
        if is_repeated and state.drop_ticket <= covered and not state.is_releasing:
            state.added_in = self._health.add_period
            self._answer_repeated(request, lac, on_done)
            return
        if is_overlap and not request.is_recovery:
            self._shared.counters.add_overlap += 1
        self._admit(request, lac, on_done, is_compared=True)

    def _answer_repeated(self, request: StoredAdd, lac: int, on_done: OnAdd) -> None:
        """Answer OK because a durable copy of the add exists, unless the add must be refused."""
        state = self._states.get(request.ledger_id)
        verdict = admit_add(request, state, self._health, self._free_bytes)
        if verdict is None or verdict in (Code.READ_ONLY, Code.BUSY):
            self._shared.counters.adds_repeated += 1
            on_done(Code.OK)
        elif isinstance(verdict, Code):
            on_done(verdict)
        else:
            self._health.in_flight_bytes += len(request.body)
            self._check_first(request, lac, on_done)

    # Metadata checks, which are needed after a possible loss of state.

    def _check_first(self, request: StoredAdd, lac: int, on_done: OnAdd) -> None:
        """Start a check of the ledger's metadata, or wait for the check that is running.

        The caller has already counted the add in `in_flight_bytes`.
        """

        def decided(standing: Standing) -> None:
            self._health.in_flight_bytes -= len(request.body)
            if self._health.is_closing or standing in (Standing.UNKNOWN, Standing.OPEN_WITHOUT_ME):
                # If another bookie has replaced this bookie, refuse the late add without a fence,
                # because the writer may use this bookie again.
                if not self._health.is_closing:
                    self._report(request, unwritable(request.ledger_id, standing))
                on_done(Code.IO_ERROR)
            else:
                self._admit(request, lac, on_done)

        waiting = self._checks.get(request.ledger_id)
        if waiting is not None:
            waiting.append(decided)
            return
        self._checks[request.ledger_id] = [decided]
        self._tasks.spawn("metadata check", self._check(request.ledger_id, request.master_key))

    async def _check(self, ledger_id: int, master_key: bytes) -> None:
        while True:
            # The answer of the metadata store covers the losses up to now. If a loss happens during
            # the check, the metadata is read again.
            before, epoch = self._health.doubt, self._health.check_epoch
            checked = await check_in_time(self._shared, ledger_id)
            standing = Standing.UNKNOWN if self._health.has_failed else checked.standing
            check = rules.check_add(standing, before=before, now=self._health.doubt)
            if check is not AddCheck.READ_AGAIN:
                break
        if check is AddCheck.TAKE:
            state = self._shared.state_of(ledger_id)
            state.check_epoch, state.is_unverified = epoch, False
            self._states.changed.add(ledger_id)
            self._denials.take_creation(ledger_id, checked.created, before)
        elif check is AddCheck.FENCE:
            await self._fences.fence_unwritable(ledger_id, master_key)
        for decided in self._checks.pop(ledger_id):
            decided(standing)


def unwritable(ledger_id: int, standing: Standing) -> StorageError:
    """Return the error for an add whose metadata check did not allow it."""
    reason = (
        "the metadata store did not answer in time"
        if standing is Standing.UNKNOWN
        else "another bookie has replaced this bookie in the ledger"
    )
    return StorageError(
        f"an add to ledger {ledger_id} was not stored: {reason}", path=".", ledger_id=ledger_id
    )
