"""A storage of three directories against a dictionary, with failures and removed directories."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ledgerlog_spark.model import Code
from tests.crash.machine import entry
from tests.crash.several import Several

LEDGERS = st.integers(0, 8)
DIRECTORIES = st.integers(0, 2)
UNKNOWN = (Code.IO_ERROR,)


class StorageOfDirectories(RuleBasedStateMachine):
    """Each call is answered before the next one, so the model knows everything.

    Attributes:
        homes: The directory of each ledger with a record, also if it was removed.
        stored: The acknowledged entries of each ledger.
        failed: Directories that have failed since the last start.
    """

    def __init__(self) -> None:
        super().__init__()
        self.several = Several(count=3)
        self.several.start()
        self.homes: dict[int, int] = {}
        self.stored: dict[int, dict[int, bytes]] = {}
        self.fenced: set[int] = set()
        self.failed: set[int] = set()
        self.full: set[int] = set()
        self.is_in_doubt = False
        self.number = 0

    @property
    def serving(self) -> list[int]:
        return [number for number in self.several.used if number not in self.failed]

    def has_home(self, ledger_id: int) -> bool:
        return self.homes.get(ledger_id) in self.serving

    def is_lost(self, ledger_id: int) -> bool:
        """Whether the directory of the ledger has failed or was removed."""
        return ledger_id in self.homes and not self.has_home(ledger_id)

    def note_home(self, ledger_id: int) -> None:
        """The ledger has a state. A ledger never moves."""
        home = self.several.home_of(ledger_id)
        assert home is not None
        if self.homes.get(ledger_id) in self.several.used:
            assert self.homes[ledger_id] == home
        elif ledger_id in self.homes:
            # Its directory was removed. Everything that was there stays unknown.
            self.stored.pop(ledger_id, None)
            self.fenced.discard(ledger_id)
        self.homes[ledger_id] = home

    @rule(ledger_id=LEDGERS, entry_id=st.integers(0, 5), is_recovery=st.booleans())
    def add(self, ledger_id: int, entry_id: int, is_recovery: bool) -> None:
        self.number += 1
        payload = b"%d" % self.number
        code = self.several.front.add(ledger_id, [entry_id], payload, is_recovery=is_recovery)
        known = self.homes.get(ledger_id)
        if known in self.failed:
            assert code is Code.IO_ERROR
            return
        if not is_recovery:
            if ledger_id in self.fenced and self.has_home(ledger_id):
                assert code is Code.FENCED
                return
            accepting = set(self.serving) - self.full
            is_accepted = known in accepting if self.has_home(ledger_id) else bool(accepting)
            if self.failed or not is_accepted:
                assert code is Code.READ_ONLY
                return
        assert code is (Code.OK if self.serving else Code.IO_ERROR)
        if code is Code.OK:
            self.note_home(ledger_id)
            held = self.stored.setdefault(ledger_id, {})
            held[entry_id] = entry(ledger_id, entry_id, payload)

    @rule(ledger_id=LEDGERS)
    def fence(self, ledger_id: int) -> None:
        code, data = self.several.front.fence(ledger_id)
        held = self.stored.get(ledger_id, {})
        if self.is_lost(ledger_id) or not self.serving:
            assert code is Code.IO_ERROR
        elif not self.is_in_doubt and (self.has_home(ledger_id) or not self.failed):
            assert data == (held[max(held)] if held else None)
            assert code is Code.OK or code.is_absent
        else:
            assert code is Code.IO_ERROR
        if self.homes.get(ledger_id) not in self.failed and self.serving:
            self.note_home(ledger_id)
            self.fenced.add(ledger_id)

    @rule(ledger_id=LEDGERS)
    def drop(self, ledger_id: int) -> None:
        if self.has_home(ledger_id) and not self.is_in_doubt:
            assert self.several.front.drop(ledger_id) is Code.OK
            self.stored[ledger_id] = {}
            self.fenced.add(ledger_id)

    @rule(number=DIRECTORIES, is_full=st.booleans())
    def fill(self, number: int, is_full: bool) -> None:
        if number in self.serving:
            place = self.several.used.index(number)
            self.several.serving.directories[place]._health.is_disk_full = is_full
            (self.full.add if is_full else self.full.discard)(number)

    @rule(number=DIRECTORIES)
    def fail(self, number: int) -> None:
        if number in self.serving and any(home == number for home in self.homes.values()):
            self.several.fail(number)
            self.failed.add(number)

    @rule(way=st.sampled_from(("stop", "crash", "lose_power")))
    def restart(self, way: str) -> None:
        self._restart(way)

    @precondition(lambda self: len(self.several.used) > 1)
    @rule(number=DIRECTORIES, way=st.sampled_from(("stop", "crash", "lose_power")))
    def remove(self, number: int, way: str) -> None:
        if number in self.several.used and len(self.several.used) > 2:
            self.several.used.remove(number)
            self.several.loss = "a directory was removed"
            self.is_in_doubt = True
            self._restart(way)
            self.several.loss = ""

    def _restart(self, way: str) -> None:
        self.several.end(way)
        self.failed.clear()
        self.full.clear()
        self.several.start()

    @invariant()
    def no_acknowledged_entry_and_no_unknown_ledger_is_denied(self) -> None:
        for ledger_id in range(9):
            held = self.stored.get(ledger_id, {})
            for entry_id in range(6):
                code, data = self.several.front.read(ledger_id, entry_id)
                if self.is_lost(ledger_id):
                    assert code in (Code.OK, Code.IO_ERROR)
                elif entry_id in held:
                    assert (code, data) == (Code.OK, held[entry_id])
                elif self.is_in_doubt or (self.failed and not self.has_home(ledger_id)):
                    assert code is Code.IO_ERROR
                else:
                    assert code.is_absent

    @invariant()
    def the_state_is_that_of_all_directories(self) -> None:
        serving = self.several.serving
        assert (serving.failure is None) == bool(self.serving)
        can_write = not self.failed and bool(set(self.serving) - self.full)
        assert serving.is_writable == can_write
        assert len(set(self.several.epochs())) == 1
        assert serving.has_room == bool(self.serving)

    def teardown(self) -> None:
        self.several.scheduler.close()


StorageOfDirectories.TestCase.settings = settings(stateful_step_count=30)
test_storage_of_directories_denies_nothing_that_it_may_have_lost = StorageOfDirectories.TestCase
