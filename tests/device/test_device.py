"""The promises of the real OsFileSystem hold in the states that a power loss may leave."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.device.program import MISTAKES
from tests.device.replays import LostError, replay

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None,
    reason="strace is not installed (Debian: apt install strace)",
)


@pytest.mark.parametrize("seed", range(4))
def test_the_port_keeps_its_promises(tmp_path: Path, seed: int) -> None:
    seen = replay(tmp_path, "port", seed)
    assert seen["promises"] > 20
    assert seen["syncs"] > 20
    assert seen["states"] > 500


def test_a_storage_on_the_port_keeps_its_promises(tmp_path: Path) -> None:
    seen = replay(tmp_path, "storage", 1)
    assert seen["promises"] > 15
    assert seen["states"] > 500


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_is_noticed(tmp_path: Path, mistake: str) -> None:
    with pytest.raises(LostError):
        replay(tmp_path, "storage", 1, mistake)


@pytest.mark.parametrize("mistake", ["no_sync", "other_descriptor"])
def test_a_missing_sync_breaks_a_promise_of_the_port(tmp_path: Path, mistake: str) -> None:
    with pytest.raises(LostError):
        replay(tmp_path, "port", 1, mistake)
