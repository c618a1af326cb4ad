"""Reads the newest transaction id of a ZooKeeper ensemble, in a session of its own."""

from __future__ import annotations

import contextlib
import logging

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())


def newest_transaction_id(hosts: str, timeout_seconds: float) -> int | None:
    """The id of the newest transaction of the ensemble at `hosts`; blocks.

    The server that answers has caught up with its leader first. So an id below one that was seen
    before means that transactions are lost: it is another ensemble, or one that lost its data.
    None when no server answers in time.
    """
    client = KazooClient(hosts=hosts, timeout=timeout_seconds, logger=_logger)
    try:
        client.start(timeout_seconds)
        client.sync_async("/").get(timeout_seconds)
        return int(client.last_zxid)
    except (KazooException, client.handler.timeout_exception):
        return None
    finally:
        stop(client)


def stop(client: KazooClient) -> None:
    """End the session and its threads; blocks, up to a session timeout if the server is silent."""
    # kazoo raises its errors while it stops; there is nothing left to save.
    with contextlib.suppress(Exception):
        client.stop()
    with contextlib.suppress(Exception):
        client.close()
