"""The kinds of loss. Each ends with a bookie that serves, and that may lack entries."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from random import Random

from tests.fixtures.bookie_process import BookieProcess
from tests.limbo_test.power import cut_power, kill_traced

FLIPPED_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss of one bookie.

    Attributes:
        name: Its name in the report.
        bookie: Number of the bookie.
        before: Called while the bookie serves, before the entries that will be lost are written.
        lose: Called at the loss.
    """

    name: str
    bookie: int
    lose: Callable[[BookieProcess, Random], None]
    before: Callable[[BookieProcess], None] = lambda _bookie: None


def lose_power(bookie: BookieProcess, random: Random) -> None:
    """Cut the power of a traced bookie in mode `unjournaled`."""
    kill_traced(bookie)
    cut_power(bookie, random)
    bookie.start()


def wipe(bookie: BookieProcess, _random: Random) -> None:
    """Start with an empty directory and an empty journal, as on a new machine."""
    bookie.kill()
    shutil.rmtree(bookie.directory)
    journal = Path(str(bookie.settings["journal_directory"]))
    shutil.rmtree(journal)
    journal.mkdir()
    bookie.settings["allow_lost_directory"] = True
    bookie.start()
    del bookie.settings["allow_lost_directory"]


def backup_of(bookie: BookieProcess) -> Path:
    """The copy of a directory."""
    return bookie.directory.with_suffix(".copy")


def keep_copy(bookie: BookieProcess) -> None:
    """Copy the directory of a bookie, which is stopped meanwhile."""
    assert bookie.stop() == 0
    shutil.copytree(bookie.directory, backup_of(bookie))
    bookie.start()


def restore_copy(bookie: BookieProcess, _random: Random) -> None:
    """Replace the directory of a bookie by its older copy."""
    bookie.kill()
    shutil.rmtree(bookie.directory)
    backup_of(bookie).rename(bookie.directory)
    bookie.start()


def lose_second_disk(bookie: BookieProcess, _random: Random) -> None:
    """Start a bookie without the second of its directories, which is gone."""
    bookie.kill()
    second = Path(str(bookie.settings["directory"]))
    shutil.rmtree(second)
    bookie.settings["without_directory"] = second
    bookie.start()


def finish_files(bookie: BookieProcess) -> None:
    """Let a bookie finish its files: a clean stop finishes the file of the last entries."""
    assert bookie.stop() == 0
    bookie.start()


def flip_bytes(bookie: BookieProcess, random: Random) -> None:
    """Flip bytes in the finished files of a bookie that serves."""
    finish_files(bookie)
    flip_stored(bookie, random)
    scrub(bookie)


def flip_stored(bookie: BookieProcess, random: Random) -> None:
    """Flip bytes where the bookie last wrote that its files have data."""
    files = [file for file in bookie.manifest()["files"] if file["data_end"] > 512]
    for _ in range(FLIPPED_BYTES):
        file = random.choices(files, [file["data_end"] for file in files])[0]
        with (bookie.directory / file["slot"]).open("r+b") as slot:
            offset = random.randrange(512, file["data_end"])
            slot.seek(offset)
            byte = slot.read(1)[0]
            slot.seek(offset)
            slot.write(bytes([byte ^ (1 << random.randrange(8))]))


def scrub(bookie: BookieProcess) -> None:
    """Let a bookie look for damage now, and not once a week."""
    url = f"http://127.0.0.1:{bookie.settings['metrics_port']}/api/v1/bookie/scrub"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as answer:
        assert answer.status == HTTPStatus.OK


LOSSES = (
    Loss("power cut of an unjournaled bookie", 0, lose_power),
    Loss("wiped directory", 1, wipe),
    Loss("older copy of a directory", 2, restore_copy, keep_copy),
    Loss("1,000 flipped bytes", 3, flip_bytes),
    Loss("lost second disk", 4, lose_second_disk),
)
