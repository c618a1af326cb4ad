"""Tests of this folder may run in virtual time."""

from tests.fixtures.worlds import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
