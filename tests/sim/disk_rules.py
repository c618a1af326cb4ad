"""Rules of a bookie's directory that hold at each operation, whatever the bookie does.

The simulated disk checks them, so each simulator and each test on a simulated disk fails when one
is broken, although the power loss that would show the damage is not played.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookie_server.core.manifest_codec import NAME, FileState, Manifest, decode_manifest
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.storage.files.room import INDEX_BYTES_BESIDE

if TYPE_CHECKING:
    from tests.sim.disk import Content, SimDisk


def check_rename(disk: SimDisk, source: str, target: str) -> None:
    """Before a MANIFEST gets its name, everything that it names is durable.

    The rename may become durable before all other changes that are not synced.
    """
    if target != NAME:
        return
    content = disk.seen_names[source]
    assert not content.unsynced, f"{source} is renamed before its sync"
    manifest = decode_manifest(bytes(content.durable))
    states = disk.durable_names.get(manifest.state_file)
    assert states is not None, f"the name of {manifest.state_file}, with states, is not durable"
    assert not states.unsynced, f"{manifest.state_file} is not synced"
    for file in manifest.files:
        seen = disk.seen_names.get(file.slot)
        if seen is None:
            continue  # the file was lost before
        assert disk.durable_names.get(file.slot) is seen, f"the name of {file.slot} is not durable"
        if file.state is FileState.FINISHED:
            assert not seen.unsynced, f"{file.slot} is finished, and it is not synced"


def check_removal(disk: SimDisk, name: str) -> None:
    """No file is removed that the durable MANIFEST names."""
    manifest = durable_manifest(disk)
    if manifest is None:
        return
    named = {manifest.state_file, *manifest.free_slots, *(file.slot for file in manifest.files)}
    assert name not in named, f"{name} is removed, and the durable MANIFEST names it"


def check_write(name: str, content: Content, offset: int, end: int, *, is_small: bool) -> None:
    """No write of a file with blocks goes beyond them, because the device may have no others.

    There are two exceptions. A first record that leaves no room for an index is larger than a file.
    And when a device of a limited size becomes full (`is_small`), the last file takes all adds that
    were accepted before, which may be more than its blocks (ADR 35).
    """
    if offset == RECORDS_START:
        content.may_go_beyond = end + INDEX_BYTES_BESIDE > content.allocated
    content.may_go_beyond |= is_small
    within = not content.allocated or content.may_go_beyond or end <= content.allocated
    assert within, f"a write to {name} ends at {end}, its blocks at {content.allocated}"


def durable_manifest(disk: SimDisk) -> Manifest | None:
    """The MANIFEST that a power loss leaves at least; None before the first one."""
    content = disk.durable_names.get(NAME)
    return None if content is None else decode_manifest(bytes(content.durable))
