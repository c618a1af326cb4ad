"""Fixtures that every kind of test may use live in tests/fixtures, one module for each thing."""

from __future__ import annotations

pytest_plugins = ["tests.fixtures.zookeeper"]
