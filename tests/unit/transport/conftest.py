from __future__ import annotations

from tests.fixtures.loops import BOTH, LoopFactories


def pytest_asyncio_loop_factories() -> LoopFactories:
    return BOTH
