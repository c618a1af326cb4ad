"""Invariants of a bookie's files while it serves and no request is pending."""

from __future__ import annotations

from bookie_server.core.manifest_codec import FileState
from tests.crash.machine import Machine
from tests.crash.model import ViolationError


def check_files(machine: Machine) -> None:
    """The directory has the slots that the MANIFEST names, each once; a finished file is synced."""
    manifest = machine.manifest()
    slots = [file.slot for file in manifest.files] + list(manifest.free_slots)
    if machine.slots() != set(slots):
        raise ViolationError(f"the MANIFEST names {slots}, there are {machine.slots()}")
    if len(slots) != len(set(slots)):
        raise ViolationError(f"the MANIFEST names a slot twice: {sorted(slots)}")
    for file in manifest.files:
        if file.slot not in machine.disk.durable_names:
            raise ViolationError(f"the name of {file.slot} is not durable")
        unsynced = machine.disk.durable_names[file.slot].unsynced
        if file.state is FileState.FINISHED and any(at < file.data_end for at, _ in unsynced):
            raise ViolationError(f"{file.slot} is finished, and it is not synced")
    keeper = machine.serving._keeper
    for finished in keeper.finished:
        slot = finished.entry.slot
        may_go_beyond = machine.disk.durable_names[slot].may_go_beyond
        is_longer = finished.head is not None and finished.end > finished.entry.size_bytes
        if is_longer and not may_go_beyond:
            raise ViolationError(f"{slot} is longer than its blocks")
    used = {file.entry.slot for file in (*keeper.opened, *keeper.finished)}
    if used & set(manifest.free_slots):
        raise ViolationError(f"free slots are read: {used & set(manifest.free_slots)}")


def check_origins(machine: Machine) -> None:
    """No record gets an origin that an earlier record or tombstone has."""
    storage = machine.serving
    keeper = storage._keeper
    newest = [state.tombstone for state in storage._states.values()]
    newest += [total.origin_newest for file in keeper.finished for total in file.totals()]
    newest += [total.origin_newest for file in keeper.opened for total in file.index.totals()]
    following = storage._shared.sequences.next_sequence
    if max(newest, default=0) >= following:
        raise ViolationError(f"the next record gets {following}, one has {max(newest)}")


def check_runs(machine: Machine) -> None:
    """No file of an earlier run is left."""
    mode = machine.serving._mode
    if len(machine.disk.numbers) != (mode.survivor is not None):
        raise ViolationError(f"numbers of earlier runs: {machine.disk.numbers}")
    names = {name for name in machine.journal_disk.seen_names if name.startswith("journal-")}
    if any(mode.run.run_id not in name for name in names):
        raise ViolationError(f"journal files of earlier runs: {sorted(names)}")
