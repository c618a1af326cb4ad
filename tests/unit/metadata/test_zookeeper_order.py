"""Reads of one tree never return older states, even if ZooKeeper replaces its session."""

from __future__ import annotations

from kazoo.protocol.states import KeeperState

from ledgerlog_spark.metadata.zookeeper.session import ZookeeperSession

SEEN = 77


async def test_a_session_that_replaces_another_shows_each_server_what_was_seen() -> None:
    """A server that is behind refuses the session, so a read after a sync is never older."""
    session = ZookeeperSession("127.0.0.1:1", session_timeout_ms=10_000, request_timeout_ms=15_000)
    client = session._client
    client.last_zxid = SEEN
    for state in (KeeperState.CONNECTING, KeeperState.EXPIRED_SESSION, KeeperState.CONNECTING):
        client._session_callback(state)
    assert client._session_id is None
    assert client.last_zxid == SEEN
