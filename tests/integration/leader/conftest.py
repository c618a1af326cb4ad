from __future__ import annotations

from tests.integration.client.conftest import BookieCluster, cluster

__all__ = ["BookieCluster", "cluster"]
