from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bookie_server.service.membership.registration import SessionFile
from ledgerlog_spark.metadata.tree import NodeKind
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import MemoryTree


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A bookie's directory with its lock file. `boot_id` next to it replaces that of the kernel."""
    (tmp_path / "boot_id").write_text("first boot\n")
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "LOCK").touch()
    return directory


def file_of(directory: Path) -> SessionFile:
    return SessionFile(directory, boot_id=directory.parent / "boot_id")


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def killed_process(directory: Path, nodes: MemoryNodes) -> MemoryTree:
    """The session of a killed process. Its node exists, and the process will not close it."""
    tree = MemoryTree(nodes)
    file_of(directory).follow(tree)
    await tree.create("/bookie", kind=NodeKind.EPHEMERAL)
    return tree


async def test_next_start_ends_the_session_of_the_process_before(directory: Path) -> None:
    nodes = MemoryNodes()
    await killed_process(directory, nodes)
    later = MemoryTree(nodes)
    await file_of(directory).end_last(later)
    assert await later.stat("/bookie") is None


async def test_session_that_replaced_a_lost_one_is_the_one_remembered(directory: Path) -> None:
    nodes = MemoryNodes()
    tree = MemoryTree(nodes)
    stop_following = file_of(directory).follow(tree)
    tree.expire_session()
    await tree.create("/bookie", kind=NodeKind.EPHEMERAL)
    assert json.loads((directory / "SESSION").read_text())["secret"] == tree.session_secret.hex()
    stop_following()
    later = MemoryTree(nodes)
    await file_of(directory).end_last(later)
    assert await later.stat("/bookie") is None


async def test_file_is_readable_by_its_owner_only(directory: Path) -> None:
    file_of(directory).follow(MemoryTree())
    assert (directory / "SESSION").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: (d.parent / "boot_id").write_text("second"), id="after a reboot"),
        pytest.param(lambda d: (d.parent / "boot_id").unlink(), id="no boot id"),
        pytest.param(
            lambda d: ((d / "LOCK").rename(d / "OLD"), (d / "LOCK").touch()), id="copied directory"
        ),
        pytest.param(lambda d: (d / "SESSION").write_text("{"), id="cut off"),
        pytest.param(lambda d: (d / "SESSION").write_text("[]"), id="not a record"),
        pytest.param(lambda d: (d / "SESSION").unlink(), id="no file"),
    ],
)
async def test_session_is_left_alone_where_its_owner_may_live(
    directory: Path, change: Callable[[Path], object]
) -> None:
    nodes = MemoryNodes()
    await killed_process(directory, nodes)
    change(directory)
    later = MemoryTree(nodes)
    await file_of(directory).end_last(later)
    assert await later.stat("/bookie") is not None


async def test_store_that_does_not_answer_delays_nothing(directory: Path) -> None:
    nodes = MemoryNodes()
    await killed_process(directory, nodes)
    later = MemoryTree(nodes)
    later.disconnect()
    await file_of(directory).end_last(later)
    file_of(directory).follow(later)
    record = json.loads((directory / "SESSION").read_text())
    assert record["secret"] == later.session_secret.hex()


async def test_the_end_of_the_last_session_writes_nothing(directory: Path) -> None:
    await file_of(directory).end_last(MemoryTree())
    assert names_in(directory) == ["LOCK"]
