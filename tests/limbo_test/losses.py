"""Takes entries that a bookie acknowledged, in each way that the documents name."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fixtures.bookie_process import BookieProcess

NUMBERS = Path("/dev/shm")
HEADER_BYTES = 4_096
LOST_PART = 0.3

Loss = Callable[["BookieProcess", random.Random], str]
"""Ends the bookie, takes something from it, and starts it again. Returns what was lost."""


def _manifest_id(bookie: BookieProcess) -> str:
    return str(bookie.manifest()["directory_id"])


def cut_power(bookie: BookieProcess, dice: random.Random) -> str:
    """Lose a part of what an unjournaled bookie has not synced: the end of its newest file."""
    newest = None
    bookie.kill()
    for path in sorted(bookie.directory.glob("slot-*"), key=lambda one: one.stat().st_mtime_ns):
        if len(path.read_bytes().rstrip(b"\0")) > HEADER_BYTES:
            newest = path
    lost = 0
    if newest is not None:
        data = newest.read_bytes()
        end = len(data.rstrip(b"\0"))
        kept = HEADER_BYTES + int((end - HEADER_BYTES) * dice.uniform(1 - LOST_PART, 1))
        kept -= kept % 512
        lost = end - kept
        newest.write_bytes(data[:kept] + bytes(len(data) - kept))
    for path in NUMBERS.glob(f"*{_manifest_id(bookie)}*"):
        path.unlink()
    bookie.start()
    return f"power: {lost} bytes of {newest.name if newest else 'nothing'}"


def wipe(bookie: BookieProcess, _dice: random.Random) -> str:
    """Lose the whole directory."""
    bookie.kill()
    shutil.rmtree(bookie.directory)
    bookie.settings["allow_lost_directory"] = True
    bookie.start()
    del bookie.settings["allow_lost_directory"]
    return "wiped directory"


def restore_yesterday(bookie: BookieProcess, _dice: random.Random) -> str:
    """Replace the directory by the copy that `keep_a_copy` made."""
    bookie.kill()
    shutil.rmtree(bookie.directory)
    copy_of(bookie).rename(bookie.directory)
    bookie.start()
    return "yesterday's copy"


def copy_of(bookie: BookieProcess) -> Path:
    """The place of the copy of a directory."""
    return bookie.directory.with_suffix(".yesterday")


def keep_a_copy(bookie: BookieProcess) -> None:
    """Copy the directory of a bookie after a clean stop, for `restore_yesterday`."""
    bookie.stop()
    shutil.copytree(bookie.directory, copy_of(bookie))
    bookie.start()


LOSSES: dict[str, Loss] = {
    "bookie-0": cut_power,
    "bookie-1": wipe,
    "bookie-2": restore_yesterday,
}
"""The loss of each bookie, in this order."""
