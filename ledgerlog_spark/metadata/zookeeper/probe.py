"""Reads the newest transaction id of a ZooKeeper ensemble, in a separate session."""

from __future__ import annotations

import contextlib
import logging

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())


def newest_transaction_id(hosts: str, timeout_seconds: float) -> int | None:
    """Return the id of the newest transaction of the ensemble at `hosts`. This call blocks.

    Before a server answers, it gets all changes of its leader. Therefore an id that is lower than
    an earlier id comes from another ensemble, or from an ensemble that has lost its data. Return
    None if no server answers in time.
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
    """End the session and its threads.

    If no server answers, this call blocks for at most a session time-out.
    """
    # kazoo may raise errors when it stops. No caller needs these errors, so they are dropped.
    with contextlib.suppress(Exception):
        client.stop()
    with contextlib.suppress(Exception):
        client.close()
