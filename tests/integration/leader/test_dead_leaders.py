"""Leader processes that are killed while they append."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fixtures.bookie_cluster import BookieCluster
from tests.integration.leader.conftest import Tailing, of

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]

LEADER = """
import sys, ledgerlog_spark as ll
with ll.connect(sys.argv[1]) as client:
    log = client.open_log("orders", lead=True, properties={"rollBytes": "30000"})
    offset, pending = log.end_offset, []
    while True:
        batch = [b"record %d" % number for number in range(offset, offset + 50)]
        pending.append(log.append_many_async(batch))
        offset += 50
        if len(pending) > 4:
            print(pending.pop(0).result()[-1].offset, flush=True)
"""


def acknowledged_until_killed(cluster: BookieCluster, lines: int) -> int:
    """Kill a leader with pending appends, and return the last offset that it reported before."""
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, cluster.uri], stdout=subprocess.PIPE, text=True
    )
    assert leader.stdout is not None
    said = [int(leader.stdout.readline()) for _ in range(lines)]
    leader.kill()
    rest, _ = leader.communicate()
    return max([*said, *map(int, rest.split())])


def test_what_killed_leaders_acknowledged_is_kept_in_order_and_seen_once(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as client, cluster.connect() as reading:
        client.open_log("orders", lead=True, properties={"rollBytes": "30000"}).close()
        tailing = Tailing(reading.open_log("orders").tail(0))
        safe = 0
        for lines in (20, 1, 40):
            safe = acknowledged_until_killed(cluster, lines)
        with client.open_log("orders", lead=True) as log:
            assert log.end_offset > safe
            # A leader numbers its records from the end of the log that it found. So each record
            # contains its own offset, even if a killed leader could not report its acknowledgement.
            end = log.append(b"record %d" % log.end_offset).offset + 1
        assert [record.value for record in client.open_log("orders").read()] == of(0, end)
        assert tailing.has(end) == of(0, end)
        assert len(client.open_log("orders").state().head.items.recent) > 3
        reading.close()
        tailing.ends()
