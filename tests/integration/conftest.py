from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fixtures.bookie_cluster import BookieCluster


@pytest.fixture(scope="module")
def uri(running_cluster: BookieCluster) -> str:
    """Of three bookies for which nobody else does upkeep, without logs at first."""
    running_cluster.restore()
    return running_cluster.uri
