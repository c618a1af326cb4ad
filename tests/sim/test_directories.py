"""Random schedules whose bookies have two directories, with losses of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest

from bookie_server.storage.directories.homes import Homes
from bookie_server.storage.ledger_storage import LedgerStorage
from tests.sim.draws import Draws
from tests.sim.options import drawn
from tests.sim.schedule import Outcome, run_schedule

SCHEDULES = 80
MARKS = ("disk full", "one of two directories failed", "power loss", "rot")


def outcomes() -> Iterator[Outcome]:
    """Play schedules with two directories, and with errors of disks in half of them."""
    for seed in range(SCHEDULES):
        options = replace(drawn(Draws(seed)), directories=2)
        if seed % 2:
            options = replace(options, disk_errors=3, full_disks=1)
        yield run_schedule(seed, options=options)


def test_no_schedule_with_two_directories_breaks_an_invariant() -> None:
    met: set[str] = set()
    for outcome in outcomes():
        met.update(outcome.marks)
        assert outcome.violation is None, f"seed {outcome.seed}: {outcome.violation}"
    assert not set(MARKS) - met


def test_schedules_notice_a_home_that_changes_with_the_free_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def roomiest(self: Homes, ledger_id: int) -> LedgerStorage | None:
        storages = [each for each in self._storages if each.is_home(ledger_id)]
        return max(self._storages, key=lambda each: each.disk.space.free) if storages else None

    monkeypatch.setattr(Homes, "of", roomiest)
    assert any(outcome.violation for outcome in islice(outcomes(), 40))


def test_schedules_notice_a_failed_directory_that_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledgers of a failed directory count as unknown."""

    def of_serving(self: Homes, ledger_id: int) -> LedgerStorage | None:
        for each in self._storages:
            if each.failure is None and each.is_home(ledger_id):
                return each
        return None

    monkeypatch.setattr(Homes, "of", of_serving)
    assert any(outcome.violation for outcome in outcomes())
