"""The way of an add from its request to the journal: admission, repeats, the metadata check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bookie_server.core.ledger_gate import Health, Wait, admit_add, key_fits
from bookie_server.core.ledger_state import LedgerState, LedgerStates
from bookie_server.core.record import FLAG_RECOVERY_ADD, JournalRecord, RecordKind
from bookie_server.core.requests import (
    ID_MAX,
    AddRequest,
    OnAdd,
    inspect_add,
)
from bookie_server.core.settings import StorageSettings
from bookie_server.errors import CorruptRecordError, StorageError, TooManyFilesError
from bookie_server.ports import Future, MetadataCheck, Standing, Tasks
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.journal import Journal
from bookie_server.storage.reading.reads import Reader
from bookie_server.storage.wake_ups import guarded, resolve
from ledgerlog_spark.model import MASTER_KEY_SIZE_BYTES, Code

if TYPE_CHECKING:
    from bookie_server.storage.counters import StorageCounters

CONTROL_RECORD_SIZE = 1_024

COMPARED_BYTES = 32_768
"""So many bytes of an add that is compared with what is held count as one more entry."""


class AddPath:
    """Takes adds and explicit LACs.

    Attributes:
        in_flight_bytes: Of adds accepted and not yet answered, waiting ones included.
        is_closing: Whether the storage stops and accepts nothing any more.
        control_bytes_max: What one more control record takes in a file at most.
    """

    control_bytes_max = CONTROL_RECORD_SIZE

    def __init__(
        self,
        *,
        journal: Journal,
        keeper: FileKeeper,
        reader: Reader,
        tasks: Tasks,
        settings: StorageSettings,
        health: Health,
        states: LedgerStates,
        metadata: MetadataCheck,
        counters: StorageCounters,
    ) -> None:
        self._journal = journal
        self._keeper = keeper
        self._reader = reader
        self._tasks = tasks
        self._settings = settings
        self._health = health
        self._states = states
        self._metadata = metadata
        self._counters = counters
        self._checks: dict[int, list[Callable[[Standing], None]]] = {}
        self.is_closing = False
        self.in_flight_bytes = 0

    def state_of(self, ledger_id: int) -> LedgerState:
        """The state of a ledger, made when it is met for the first time."""
        state = self._states.get(ledger_id)
        if state is None:
            state = self._states[ledger_id] = LedgerState(ledger_id)
            state.is_unverified = ledger_id <= self._health.highest_dropped_ledger_id
            self._states.changed.add(ledger_id)
        return state

    def refuse_all(self) -> None:
        """The storage stops: what is not accepted yet is answered IO_ERROR."""
        self.is_closing = True

    def refuses_control(self) -> Code | None:
        """Why no control record can be taken now; None when one can."""
        if self._health.has_failed or self.is_closing:
            return Code.IO_ERROR
        room = 2 * self.in_flight_bytes + 2 * CONTROL_RECORD_SIZE
        if not self._health.is_writable and not self._keeper.has_room(room):
            return Code.READ_ONLY
        return None

    def add(self, request: AddRequest, on_done: OnAdd) -> None:
        """Check, then store or refuse or wait."""
        lac = inspect_add(request)
        if lac is None:
            on_done(Code.BAD_REQUEST)
        else:
            self._admit(request, lac, on_done)

    def _admit(
        self, request: AddRequest, lac: int, on_done: OnAdd, *, is_compared: bool = False
    ) -> None:
        """Decide; again after every wait, for a fence may have come meanwhile."""
        health = self._health
        state = self._states.get(request.ledger_id)
        size = len(request.body)
        health.has_room = health.is_writable or self._keeper.has_room(
            2 * (self.in_flight_bytes + size + CONTROL_RECORD_SIZE) + 12 * len(request.lengths)
        )
        free_bytes = self._settings.in_flight_bytes_max - self.in_flight_bytes
        verdict = admit_add(request, state, health, free_bytes)
        if self.is_closing:
            on_done(Code.IO_ERROR)
        elif verdict is Wait.METADATA_CHECK:
            self.in_flight_bytes += size
            self._check_first(request, lac, guarded(self._tasks, on_done))
        elif verdict is not None:
            on_done(verdict)
        elif state is None or is_compared or request.entry_ids[0] > state.last_accepted_id:
            self._store(request, lac, on_done)
        else:
            self.in_flight_bytes += size
            comparing = self._compare_first(request, lac, guarded(self._tasks, on_done))
            self._tasks.spawn("add of held entries", comparing)

    def _store(self, request: AddRequest, lac: int, on_done: OnAdd) -> None:
        ids = request.entry_ids
        state = self.state_of(request.ledger_id)
        if state.master_key is None:
            state.master_key = request.master_key
            self._states.changed.add(request.ledger_id)
        epoch = self._health.check_epoch
        if not request.is_recovery and (state.is_unverified or state.check_epoch != epoch):
            state.check_epoch, state.is_unverified = epoch, False
            self._states.changed.add(request.ledger_id)
        record = JournalRecord(
            RecordKind.RUN,
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
        self.in_flight_bytes += record.body_size
        state.last_ticket = self._journal.submit(record)

    # Repeats and overlaps.

    async def _compare_first(self, request: AddRequest, lac: int, on_done: OnAdd) -> None:
        """A run with ids that may be held: answer from the stored copy, or store it as well."""
        state = self.state_of(request.ledger_id)
        durable: Future[Code] = self._tasks.future()
        # Copies that are queued count as held, once they are durable.
        covered = state.last_ticket
        self._journal.when_durable(covered, partial(resolve, durable))
        await durable
        try:
            is_repeated, is_overlap = await self._reader.readings.compare(
                self._reader.compare(request),
                max(len(request.entry_ids), len(request.body) // COMPARED_BYTES),
            )
        except StorageError as error:
            self.in_flight_bytes -= len(request.body)
            if isinstance(error, CorruptRecordError):
                # The copy that is there is damaged: this one is as good as any.
                self._admit(request, lac, on_done, is_compared=True)
            else:
                is_busy = isinstance(error, TooManyFilesError)
                on_done(Code.BUSY if is_busy else Code.IO_ERROR)
            return
        self.in_flight_bytes -= len(request.body)
        if is_repeated and state.drop_ticket <= covered:
            self._answer_repeated(request, lac, on_done)
            return
        if is_overlap and not request.is_recovery:
            self._counters.add_overlap += 1
        self._admit(request, lac, on_done, is_compared=True)

    def _answer_repeated(self, request: AddRequest, lac: int, on_done: OnAdd) -> None:
        """The stored copy is durable; a fence still wins."""
        free_bytes = self._settings.in_flight_bytes_max - self.in_flight_bytes
        state = self._states.get(request.ledger_id)
        verdict = admit_add(request, state, self._health, free_bytes)
        if verdict is None or verdict in (Code.READ_ONLY, Code.BUSY):
            self._counters.adds_repeated += 1
            on_done(Code.OK)
        elif isinstance(verdict, Code):
            on_done(verdict)
        else:
            self.in_flight_bytes += len(request.body)
            self._check_first(request, lac, on_done)

    # The metadata check after state may have been lost.

    def _check_first(self, request: AddRequest, lac: int, on_done: OnAdd) -> None:
        """Ask once per ledger, whoever waits; its in-flight bytes are counted already."""

        def decided(standing: Standing) -> None:
            self.in_flight_bytes -= len(request.body)
            if self.is_closing or standing in (Standing.UNKNOWN, Standing.OPEN_WITHOUT_ME):
                # A late add for a place that another bookie has taken is refused and leaves no
                # trace: the writer may name this bookie again.
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
        answer: Future[Standing] = self._tasks.future()

        def settle(standing: Standing) -> None:
            resolve(answer, standing)

        async def ask() -> None:
            settle(await self._metadata.check(ledger_id))

        async def give_up() -> None:
            await self._tasks.sleep(self._settings.metadata_check_ms)
            settle(Standing.UNKNOWN)

        self._tasks.spawn("metadata question", ask())
        self._tasks.spawn("metadata deadline", give_up())
        standing = await answer
        if self._health.has_failed:
            standing = Standing.UNKNOWN
        elif standing is Standing.OPEN_WITH_ME:
            state = self.state_of(ledger_id)
            state.check_epoch, state.is_unverified = self._health.check_epoch, False
            self._states.changed.add(ledger_id)
        elif standing is Standing.NOT_WRITABLE:
            await self._fence_unwritable(ledger_id, master_key)
        for decided in self._checks.pop(ledger_id):
            decided(standing)

    async def _fence_unwritable(self, ledger_id: int, master_key: bytes) -> None:
        """The store says that a fence may have been lost: it is made again, durably."""
        state = self.state_of(ledger_id)
        if state.is_fenced or self.is_closing:
            return
        state.is_fenced = True
        self._counters.fences += 1
        # The add's key was compared with the ledger's if that is known; else nothing is fixed.
        key = state.master_key or master_key
        state.master_key = key
        self._states.changed.add(ledger_id)
        record = JournalRecord(RecordKind.FENCE, ledger_id, master_key=key)
        state.last_ticket = self._journal.submit(record)
        durable: Future[Code] = self._tasks.future()
        self._journal.when_durable(state.last_ticket, partial(resolve, durable))
        await durable

    # Explicit LAC.

    def write_lac(
        self,
        ledger_id: int,
        lac: int,
        master_key: bytes,
        on_done: OnAdd,
        after: Callable[[LedgerState, int], None],
    ) -> None:
        """Store an explicit LAC; `after` hears of the state and the LAC before.

        Watches hear of it before it is durable: the writer had it confirmed, whether or not this
        bookie remembers. Only the answer waits for the disk.
        """
        if (
            not 0 <= ledger_id <= ID_MAX
            or not 0 <= lac <= ID_MAX
            or len(master_key) != MASTER_KEY_SIZE_BYTES
        ):
            on_done(Code.BAD_REQUEST)
            return
        state = self._states.get(ledger_id)
        if state is not None and not key_fits(state, master_key):
            on_done(Code.UNAUTHORIZED)
            return
        code = self.refuses_control()
        if code is not None:
            on_done(code)
            return
        state = self.state_of(ledger_id)
        if state.master_key is None:
            state.master_key = master_key
            self._states.changed.add(ledger_id)
        record = JournalRecord(RecordKind.LAC, ledger_id, master_key=master_key, value=lac)
        record.on_done = on_done
        state.last_ticket = self._journal.submit(record)
        self._raise_lac(state, lac, after)

    def tell_lac(
        self, ledger_id: int, lac: int, master_key: bytes, after: Callable[[LedgerState, int], None]
    ) -> None:
        """Remember a LAC for as long as the process lives; what cannot be taken is passed over."""
        state = self._states.get(ledger_id)
        if state is not None and state.master_key is not None and key_fits(state, master_key):
            self._raise_lac(state, lac, after)

    def _raise_lac(
        self, state: LedgerState, lac: int, after: Callable[[LedgerState, int], None]
    ) -> None:
        before = state.lac
        if lac > state.explicit_lac:
            state.explicit_lac = lac
            self._states.changed.add(state.ledger_id)
        after(state, before)
