"""Memory of bookies and clients: the next request gets the block that was freed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ledgerlog_spark.transport.allocator import keep_freed_memory

PROGRAM = """
import resource
from ledgerlog_spark.transport.allocator import keep_freed_memory

assert keep_freed_memory()
blocks = [bytes(1 << 20) for _ in range(4)]
del blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    block = bytearray(b"x") * (1 << 20)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_blocks_of_a_megabyte_are_used_again_without_new_pages() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    pages_of_one_block = 256
    assert int(run.stdout) < 2 * pages_of_one_block


def test_choice_of_the_user_for_the_process_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_freed_memory()
