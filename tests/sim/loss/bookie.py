"""A bookie that may lose acknowledged records: a small model of the storage, with its decisions.

`admit_add`, `admit_fence`, `doubt` and `repair` are the shipped code. The rest is a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bookie_server.core import doubt as rules
from bookie_server.core.doubt import AddCheck, Denial, Doubt
from bookie_server.core.ledger_gate import Wait, admit_add, admit_fence, admit_read
from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead, inspect_add
from bookie_server.ports import Standing
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, Versioned
from tests.sim.checker import require
from tests.sim.loss.directory import Record
from tests.sim.loss.life import LossLife
from tests.sim.loss.process import OnRecord
from tests.sim.loss.repairs import Repairs

FREE_BYTES = 1 << 30


class LossBookie(LossLife):
    """Handles the requests of clients and of other bookies."""

    is_rotten = False
    has_failed = False

    def start(self) -> None:
        super().start()
        self.repairs = Repairs(self)

    @property
    def storage(self) -> LossBookie | None:
        """The object that handles the requests while the bookie serves."""
        return self if self.is_serving else None

    def serve(self, request: Callable[[], None]) -> bool:
        """Handle a request now, or when the bookie serves. Return False if the process is down."""
        if not self.is_up:
            return False
        if self.host is None:
            self.start()
        if not self.is_serving:
            self._requests.append(request)
        else:
            request()
        return True

    def _once(self, answered: Callable[..., None]) -> Callable[..., None]:
        """Return a function that forwards an answer while this process lives."""
        host = self.host

        def on_done(*answer: Any) -> None:
            if host is not None and host.is_alive:
                answered(*answer)

        return on_done

    def _may_crash(self, what: str) -> None:
        self._answers += 1
        world, rate = self.world, self.world.options.answer_crash_rate
        rate *= 10 if what == "fence" else 1
        if world.faults.happens(rate, "answer crash", what, self.name, self._answers):
            world.scheduler.call_later(0, lambda: world.crash(self.name, "answer"))

    def add(self, request: StoredAdd, answer: Callable[[Code], None]) -> bool:
        checkers = self.world.checkers
        if self.refuses_adds:
            answer(Code.BUSY)
            return self.is_up
        if not request.is_recovery:
            self.last_adds.append(request)

        def store() -> None:
            sent = checkers.add_begun(self.name, request)

            def answered(code: Code) -> None:
                checkers.add_answered(self.name, request, code, sent)
                answer(code)
                self._may_crash("add")

            self._add(request, self._once(answered))

        return self.serve(store)

    def _add(self, request: StoredAdd, answer: Callable[[Code], None]) -> None:
        state = self.states.get(request.ledger_id)
        lac = inspect_add(request)
        if lac is None:
            answer(Code.BAD_REQUEST)
            return
        verdict = admit_add(request, state, self.health, FREE_BYTES)
        if verdict is Wait.METADATA_CHECK:
            self._check_first(request, answer)
        elif verdict is not None:
            answer(verdict)
        else:
            self._store(request, answer)

    def _store(self, request: StoredAdd, answer: Callable[[Code], None]) -> None:
        ledger_id = request.ledger_id
        state = self._state_of(ledger_id, request.master_key)
        if not request.is_recovery:
            state.check_epoch = self.health.check_epoch
        at = ticket = 0
        for entry_id, length in zip(request.entry_ids, request.lengths, strict=True):
            stored = bytes(request.body[at : at + length])
            at += length
            lac = int.from_bytes(stored[16:24], "big", signed=True)
            ticket = self.submit(Record("entry", ledger_id, entry_id, stored, lac=lac))
            state.last_accepted_id = max(state.last_accepted_id, entry_id)
        self.when_stored(ticket, lambda: answer(Code.OK), is_recovery=request.is_recovery)

    def when_stored(self, ticket: int, then: Callable[[], None], *, is_recovery: bool) -> None:
        """Call `then` when an add may be acknowledged. Recovery adds are synced in any mode."""
        if is_recovery:
            self.when_synced(ticket, then)
        else:
            self.when_acknowledged(ticket, then)

    def _check_first(self, request: StoredAdd, answer: Callable[[Code], None]) -> None:
        """Start or join the check of the ledger's record."""

        def decided(check: AddCheck) -> None:
            if check is AddCheck.REFUSE:
                answer(Code.IO_ERROR)
            else:
                self._add(request, answer)

        waiting = self._checks.get(request.ledger_id)
        if waiting is not None:
            waiting.append(decided)
            return
        self._checks[request.ledger_id] = [decided]
        before, ledger_id = self.doubt, request.ledger_id

        def loaded(is_read: bool, record: Versioned[LedgerMetadata] | None, created: int) -> None:
            value = record.value if record is not None else None
            standing = rules.standing_of(value, self.name) if is_read else Standing.UNKNOWN
            check = rules.check_add(standing, before=before, now=self.doubt)
            self.world.checkers.mark(f"check {check.name}")
            if check is AddCheck.TAKE:
                self._take_creation(ledger_id, created, before)
                state = self._state_of(ledger_id, request.master_key)
                state.check_epoch = before.epoch
            if check is AddCheck.FENCE:
                self._set_fence(ledger_id, request.master_key, partial(done, check))
            else:
                done(check)

        def done(check: AddCheck) -> None:
            for decided in self._checks.pop(ledger_id):
                decided(check)

        self.load_for_check(ledger_id, loaded)

    def load_for_check(self, ledger_id: int, then: OnRecord) -> None:
        """Load the record of a ledger for its first add."""
        self.load_record(ledger_id, then)

    def _take_creation(self, ledger_id: int, created: int, before: Doubt) -> None:
        """Clear a ledger whose record is newer than the loss."""
        epoch = rules.cleared_by_creation(created, before)
        self._note_cleared(ledger_id, epoch)

    def _note_cleared(self, ledger_id: int, epoch: int) -> None:
        if epoch:
            self.world.checkers.mark("newer than the loss")
            self.cleared[ledger_id] = max(self.cleared.get(ledger_id, 0), epoch)

    def _set_fence(self, ledger_id: int, key: bytes, then: Callable[[], None]) -> None:
        state = self._state_of(ledger_id, key)
        if not state.is_fenced:
            state.is_fenced = True
            self._fence_tickets[ledger_id] = self.submit(Record("fence", ledger_id))
        self.when_control(self._fence_tickets.get(ledger_id, 0), then)

    def when_control(self, ticket: int, then: Callable[[], None]) -> None:
        """Call `then` when a control record is durable."""
        self.when_synced(ticket, then)

    def read(self, request: StoredRead, answer: Callable[[Code, bytes | None], None]) -> bool:
        checkers = self.world.checkers

        def look() -> None:
            promise = checkers.promise(self.name, request.ledger_id, request.entry_id)

            def answered(code: Code, stored: bytes | None) -> None:
                checkers.read_answered(self.name, request, code, stored, promise)
                answer(code, stored)
                if request.fence_key is not None:
                    self._may_crash("fence")

            self._read(request, self._once(answered))

        return self.serve(look)

    def _read(self, request: StoredRead, answer: Callable[[Code, bytes | None], None]) -> None:
        code, ledger_id = admit_read(request), request.ledger_id
        if code is None and request.fence_key is not None:
            code = admit_fence(request.fence_key, self.states.get(ledger_id), self.health)
        if code is not None:
            answer(code, None)
            return

        def look() -> None:
            held = self.entries.get(ledger_id, {})
            if request.entry_id == NO_ENTRY:
                self._deny_more(ledger_id, denied)
            elif request.entry_id in held:
                answer(Code.OK, held[request.entry_id])
            else:
                self._deny(ledger_id, denied)

        def denied(code: Code) -> None:
            # The ledger may have got entries while the bookie waited for the record.
            held = self.entries.get(ledger_id, {})
            entry_id = request.entry_id
            if entry_id == NO_ENTRY and code.is_absent:
                entry_id = max(held, default=NO_ENTRY)
            stored = held.get(entry_id)
            answer(code if stored is None else Code.OK, stored)

        def ordered() -> None:
            state = self.states.get(ledger_id)
            self.when_acknowledged(0 if state is None else state.last_ticket, look)

        if request.fence_key is not None:
            self._set_fence(ledger_id, request.fence_key, ordered)
        elif request.is_recovery:
            ordered()
        else:
            look()

    def _deny(self, ledger_id: int, then: Callable[[Code], None]) -> None:
        """Decide on the answer for a missing entry. `then` may be called later."""

        def decide(*, may_ask: bool) -> None:
            denial = rules.denial(
                self.cleared.get(ledger_id), self.doubt, self.compared.get(ledger_id, 0)
            )
            if denial is Denial.ABSENT:
                is_held = ledger_id in self.states
                then(Code.NO_ENTRY if is_held else Code.NO_LEDGER)
            elif denial is Denial.COMPARE and may_ask:
                self._ask_creation(ledger_id, lambda: decide(may_ask=False))
            else:
                self.world.checkers.mark("unknown in limbo")
                self.repairs.want(ledger_id)
                then(Code.IO_ERROR)

        decide(may_ask=True)

    def _deny_more(self, ledger_id: int, then: Callable[[Code], None]) -> None:
        """Decide on the last entry or the LAC: the answer denies that later entries exist."""
        self._deny(ledger_id, then)

    def _ask_creation(self, ledger_id: int, then: Callable[[], None]) -> None:
        waiting = self._questions.get(ledger_id)
        if waiting is not None:
            waiting.append(then)
            return
        self._questions[ledger_id] = [then]
        before = self.doubt

        def loaded(is_read: bool, record: Versioned[LedgerMetadata] | None, created: int) -> None:
            if is_read and record is not None:
                self.compared[ledger_id] = max(self.compared.get(ledger_id, 0), before.epoch)
                self._take_creation(ledger_id, created, before)
            for one in self._questions.pop(ledger_id):
                one()

        self.load_record(ledger_id, loaded)

    def read_batch(
        self, request: StoredBatchRead, answer: Callable[[Code, Sequence[bytes]], None]
    ) -> bool:
        checkers, ledger_id = self.world.checkers, request.ledger_id

        def look() -> None:
            promise = checkers.promise(self.name, ledger_id, request.first_entry_id)

            def answered(code: Code) -> None:
                held = self.entries.get(ledger_id, {})
                found: list[bytes] = []
                while len(found) < max(1, request.count_max):
                    stored = held.get(request.first_entry_id + len(found))
                    if stored is None:
                        break
                    found.append(stored)
                code = Code.OK if found else code
                checkers.batch_answered(self.name, request, code, found, promise)
                answer(code, found)

            if request.first_entry_id in self.entries.get(ledger_id, {}):
                answered(Code.OK)
            else:
                self._deny(ledger_id, self._once(answered))

        return self.serve(look)

    def read_lac(self, ledger_id: int, answer: Callable[[Code, int], None]) -> bool:
        checkers = self.world.checkers

        def look() -> None:
            promise = checkers.promise(self.name, ledger_id, -1)

            def denied(code: Code) -> None:
                state = self.states.get(ledger_id)
                lac = state.lac if state is not None and code.is_absent else NO_ENTRY
                code = Code.OK if state is not None and code.is_absent else code
                checkers.lac_answered(self.name, ledger_id, code, lac, promise)
                answer(code, lac)

            self._deny_more(ledger_id, self._once(denied))

        return self.serve(look)

    def take_lac(self, ledger_id: int, lac: int, key: bytes, *, is_written: bool) -> bool:
        checkers = self.world.checkers

        def store() -> None:
            if not is_written:
                return
            self._state_of(ledger_id, key)
            ticket = self.submit(Record("lac", ledger_id, lac=lac))

            def answered() -> None:
                checkers.lac_acknowledged(self.name, ledger_id, lac)

            self.when_control(ticket, self._once(answered))

        return self.serve(store)

    def peek(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the entry as the bookie would serve it now."""
        self.world.restart(self.name)
        self.serve(lambda: None)
        up = self.world.run_until(lambda: self.is_serving, 20_000)
        require(up, "V1", f"{self.name} does not start")
        return self.entries.get(ledger_id, {}).get(entry_id)
