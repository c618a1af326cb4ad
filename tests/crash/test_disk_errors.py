"""ENOSPC and EIO at each disk operation: nothing acknowledged is lost, and no damage is left."""

from __future__ import annotations

import errno
from collections import Counter

import pytest

from tests.crash.errors import MODES, Fault, faults_of, names_of, play_fault

PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("mode", MODES)
def test_an_error_at_each_operation_loses_nothing(mode: str, part: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(1 + part, len(names_of(mode)) + 1, PARTS):
        # One fault for each operation; `make disk-errors` takes all of them.
        faults = faults_of(number)
        run = play_fault(mode, faults[number // PARTS % len(faults)])
        assert run.hit
        seen[run.outcome] += 1
    assert seen["goes on"] > 5
    assert seen["ended"] > 5
    assert seen["lost power"] > 5


def test_without_room_only_a_write_of_records_and_a_sync_end_the_storage() -> None:
    outcomes: dict[str, set[str]] = {}
    played: Counter[str] = Counter()
    for number, name in enumerate(names_of("direct"), 1):
        word, _, file = name.partition(" ")
        kind = f"{word} {file.partition('-')[0]}".strip()
        played[kind] += 1
        if played[kind] <= 12:
            run = play_fault("direct", Fault(number, errno.ENOSPC))
            assert run.hit == [name]
            outcomes.setdefault(run.outcome, set()).add(kind)
    # After a failed sync, the pages count as written, so no later sync proves anything.
    syncs = {"sync slot", "sync ledgers", "sync MANIFEST.new", "sync_directory"}
    assert syncs <= outcomes["ended"] <= {"write slot", *syncs}
    assert not syncs & outcomes["goes on"]
    assert {
        "allocate slot",
        "open ledgers",
        "open slot",
        "open MANIFEST.new",
        "remove ledgers",
        "rename MANIFEST.new",
        "truncate MANIFEST.new",
        "truncate slot",
        "write ledgers",
        "write MANIFEST.new",
        "write slot",
    } <= outcomes["goes on"]
