"""Worlds for tests of this folder."""

from tests.fixtures.worlds import pytest_asyncio_loop_factories, world

__all__ = ["pytest_asyncio_loop_factories", "world"]
