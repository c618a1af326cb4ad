"""Fixtures that every kind of test may use live in tests/fixtures, one module for each thing."""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["tests.fixtures.bookies", "tests.fixtures.zookeeper"]

# The same examples every time, so that a red run is red again; `make fuzz` looks for new ones.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
