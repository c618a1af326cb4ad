from __future__ import annotations

import pytest

from tests.fixtures.bookie_cluster import BookieCluster


@pytest.fixture
def cluster(running_cluster: BookieCluster) -> BookieCluster:
    """Three bookies without logs and ledgers; a test may kill bookies and start more."""
    running_cluster.restore()
    return running_cluster
