"""A bookie's storage against a dictionary, for any order of adds, drops and restarts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bookie_server.errors import StorageError
from ledgerlog_spark.model import Code
from tests.crash.machine import SMALL, Machine, entry

LEDGERS = st.integers(0, 3)
ENTRIES = st.integers(0, 12)
ONE_SPARE = replace(SMALL, pool_files_max=2, recent_bytes_max=1, tombstone_keep_s=3_600)


class StorageWithDrops(RuleBasedStateMachine):
    """Each call is answered before the next one, so the model knows everything."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(3, settings=ONE_SPARE)
        self.machine.start()
        self.stored: dict[int, dict[int, bytes]] = {}
        self.fenced: set[int] = set()
        self.forgettable: set[int] = set()
        self.number = 0

    @rule(
        ledger_id=LEDGERS,
        first=ENTRIES,
        count=st.integers(1, 3),
        size=st.sampled_from((1, 500, 4_000)),
        is_recovery=st.booleans(),
    )
    def add(self, ledger_id: int, first: int, count: int, size: int, is_recovery: bool) -> None:
        self.number += 1
        payload = b"%d " % self.number * (size // 4 + 1)
        ids = range(first, first + count)
        code = self.machine.add(ledger_id, ids, payload, is_recovery=is_recovery)
        if ledger_id in self.fenced and not is_recovery:
            assert code is Code.FENCED
            return
        assert code is Code.OK
        held = self.stored.setdefault(ledger_id, {})
        held.update({i: entry(ledger_id, i, payload) for i in ids})

    @rule(ledger_id=LEDGERS)
    def fence(self, ledger_id: int) -> None:
        code, data = self.machine.fence(ledger_id)
        held = self.stored.setdefault(ledger_id, {})
        assert data == (held[max(held)] if held else None)
        assert code is Code.OK or code.is_absent
        self.fenced.add(ledger_id)

    @rule(ledger_id=LEDGERS)
    def drop(self, ledger_id: int) -> None:
        code = self.machine.drop(ledger_id)
        assert code is (Code.OK if ledger_id in self.stored else Code.NO_LEDGER)
        if code is Code.OK:
            self.stored[ledger_id] = {}
            self.fenced.add(ledger_id)

    @rule()
    def reclaim(self) -> None:
        """Free files. No tombstone is old enough to be forgotten."""
        self.machine.reclaim()
        assert set(self.machine.serving._states) >= set(self.stored)

    @rule(way=st.sampled_from(("stop", "crash", "lose_power")))
    def restart(self, way: str) -> None:
        getattr(self.machine, way)()
        self.machine.start()
        assert self.machine.serving.counters.boot_damaged_records == 0

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        for ledger_id, held in self.stored.items():
            listed = self.machine.held(ledger_id)
            assert not isinstance(listed, StorageError)
            assert {e for first, last in listed for e in range(first, last + 1)} == set(held)
            last = self.machine.read(ledger_id, -1)
            assert last == ((Code.OK, held[max(held)]) if held else (Code.NO_ENTRY, None))
            assert self.machine.serving.is_fenced(ledger_id) == (ledger_id in self.fenced)
        for ledger_id, held in self.stored.items():
            for entry_id, data in held.items():
                assert self.machine.read(ledger_id, entry_id) == (Code.OK, data)

    @invariant()
    def live_bytes_are_those_of_the_entries_held(self) -> None:
        """Each counted file has a live entry, so no dead file stays forever."""
        keeper = self.machine.serving._keeper
        for file in keeper.finished:
            assert file.live_bytes == file.live.total()
            for ledger_id in file.live:
                assert self.stored[ledger_id], f"{file.entry.slot} is kept for nothing"

    def teardown(self) -> None:
        self.machine.scheduler.close()


StorageWithDrops.TestCase.settings = settings(stateful_step_count=30)
test_storage_is_a_dictionary_with_drops = StorageWithDrops.TestCase
