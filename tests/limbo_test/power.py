"""Power cuts: a traced bookie is killed, and its directory gets a state that the cut may leave."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from bookie_server.storage.device.mapped_number import MappedNumber
from tests.device.model import Device
from tests.device.trace import calls, command

if TYPE_CHECKING:
    from tests.fixtures.bookie_process import BookieProcess

UNTRACED = ("LOCK", "SESSION")
"""Files that the model leaves out. A bookie ignores both after a reboot."""


def trace_of(bookie: BookieProcess) -> Path:
    """The trace of a bookie."""
    return bookie.directory.with_suffix(".trace")


def trace(bookie: BookieProcess) -> None:
    """Let the first start of a bookie run under strace. Its directory must not exist yet."""
    assert not bookie.directory.exists()
    bookie.launcher = command(trace_of(bookie))


def kill_traced(bookie: BookieProcess) -> None:
    """Kill a traced bookie, and return when its trace is complete."""
    strace = bookie.process
    assert strace is not None
    children = Path(f"/proc/{strace.pid}/task/{strace.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    bookie.wait()


def cut_power(bookie: BookieProcess, random: Random) -> None:
    """Let a killed bookie lose what a power cut may take.

    A random part of the changes that no sync covered survives, also parts of writes. The memory
    that outlives a SIGKILL is lost.
    """
    device = Device(bookie.directory, untraced=UNTRACED)
    for call in calls(trace_of(bookie)):
        device.take(call, Path(os.devnull))
    left = {name: content for name, (_, content) in device.left(random).items()}
    MappedNumber.remove(f"ledgerlog-{bookie.manifest()['directory_id']}")
    for path in bookie.directory.iterdir():
        if path.name not in left and path.name != "LOCK":
            path.unlink()
    for name, content in left.items():
        (bookie.directory / name).write_bytes(content)
    bookie.launcher = []
    trace_of(bookie).unlink()
