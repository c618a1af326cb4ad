"""The requests of a micro-batch to ZooKeeper, counted by the clients of every process."""

from __future__ import annotations

import pytest

from tests.fixtures.stream_query import WORKERS, StreamQuery

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

STEADY_REQUESTS_MAX = 6
ROLL_REQUESTS_MAX = 2
CLOSE_REQUESTS_MAX = 2


@pytest.mark.parametrize("tasks", [1, 64])
def test_steady_batches_take_at_most_six_requests_whatever_the_number_of_tasks(
    tasks: int, uri: str
) -> None:
    query = StreamQuery(uri, f"steady-{tasks}")
    first, _ = query.batch(tasks)
    steady = [query.batch(tasks)[0] for _ in range(8)]
    query.close()
    assert first > max(steady)
    assert max(steady) <= STEADY_REQUESTS_MAX, steady


def test_rolled_ledgers_take_at_most_two_requests_each_and_two_behind_the_batch(uri: str) -> None:
    query = StreamQuery(uri, "rolling")
    _, before = query.batch(WORKERS)
    steady, _ = query.batch(WORKERS)
    closing = query.close_ledgers()
    rolled, after = query.batch(WORKERS)
    query.close()
    assert {r.ledger_id for r in before}.isdisjoint({r.ledger_id for r in after})
    assert rolled - steady <= 1 + WORKERS * ROLL_REQUESTS_MAX, (steady, rolled)
    assert closing <= WORKERS * CLOSE_REQUESTS_MAX
