"""Fixtures that every kind of test may use live in tests/fixtures, one module for each thing."""

from __future__ import annotations

import gc
import re
import signal

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.fixtures.examples import PROFILE, SEARCH, SEARCH_EXAMPLES

pytest_plugins = [
    "tests.fixtures.bookie_cluster",
    "tests.fixtures.bookies",
    "tests.fixtures.simulations",
    "tests.fixtures.small_device",
    "tests.fixtures.zookeeper",
]

# The same examples every time, so that a failure is repeated; `make fuzz` looks for new examples.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile(SEARCH, deadline=None, max_examples=SEARCH_EXAMPLES, print_blob=True)
settings.load_profile(PROFILE)

# If a shell starts the tests in the background, the tests and their processes ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names that differ in each process: parallel workers would collect other tests."""
    changing = [item.nodeid for item in items if re.search(r" at 0x[0-9a-f]{6}", item.nodeid)]
    if changing:
        raise pytest.UsageError(f"give the parameters of these tests ids: {changing}")


def pytest_collection_finish() -> None:
    """Keep the modules and the items of all tests out of each later search for garbage."""
    gc.collect()
    gc.freeze()


class OneWorkerForArchitecture(LoadFileScheduling):
    """Runs the tests of a file in one worker, and all rules of the architecture in one worker.

    The rules share the syntax trees of all files.
    """

    def _split_scope(self, nodeid: str) -> str:
        folder = "tests/architecture/"
        return folder if nodeid.startswith(folder) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Only for `--dist loadfile`, which the Makefile passes."""
    is_by_file = config.getoption("dist") == "loadfile"
    return OneWorkerForArchitecture(config, log) if is_by_file else None
