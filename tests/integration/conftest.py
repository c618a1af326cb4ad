from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fixtures.bookie_cluster import BookieCluster


@pytest.fixture(scope="module")
def uri(running_cluster: BookieCluster) -> str:
    """The URI of a cluster of three bookies without logs, for which nobody else does upkeep."""
    running_cluster.restore()
    return running_cluster.uri
