"""A log that is deleted under a query that writes it, on a real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.fixtures.stream_query import StreamQuery

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@pytest.fixture(scope="module")
def logs(uri: str) -> Iterator[tuple[str, BlockingLogs]]:
    with ll.connect(uri) as client:
        yield uri, BlockingLogs(client)


def test_query_whose_log_is_deleted_is_told_so_and_makes_no_other(
    logs: tuple[str, BlockingLogs],
) -> None:
    uri, all_logs = logs
    query = StreamQuery(uri, "deleted")
    query.batch(1)
    all_logs.delete("deleted")
    with pytest.raises(LogNotFoundError, match="was deleted while the query ran"):
        query.batch(1)
    assert "deleted" not in all_logs.names()
    query.close()


def test_query_whose_log_is_deleted_and_made_again_by_others_is_told_that(
    logs: tuple[str, BlockingLogs],
) -> None:
    uri, all_logs = logs
    query = StreamQuery(uri, "replaced")
    query.batch(1)
    all_logs.delete("replaced")
    all_logs.create("replaced")
    with pytest.raises(LogNotFoundError, match="was deleted and created again while the query ran"):
        query.batch(1)
    assert all_logs.open("replaced").state().head.end_offset == 0
    query.close()


def test_first_batch_of_the_next_query_makes_a_log_in_place_of_the_deleted_one(
    logs: tuple[str, BlockingLogs],
) -> None:
    uri, all_logs = logs
    query = StreamQuery(uri, "next")
    query.batch(1)
    query.close()
    all_logs.delete("next")
    following = StreamQuery(uri, "next")
    for _ in range(2):
        following.batch(2)
    assert all_logs.open("next").state().head.end_offset == 4
    following.close()
