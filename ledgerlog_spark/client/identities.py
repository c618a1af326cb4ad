"""Reads the identities of bookies for the machines, and converts them for the metadata store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from ledgerlog_spark.metadata.replication.ports import BookieIdentities, BookieIdentity
from ledgerlog_spark.protocol.ledger.identities import Identity


async def read_identities(
    store: BookieIdentities, bookie_ids: Iterable[str]
) -> tuple[Identity, ...]:
    """Return the identity of each of these bookies that has a cookie.

    Raises:
        MetadataError: The store did not answer, or a record is damaged.
    """
    found = [await store.load(bookie_id) for bookie_id in bookie_ids]
    return tuple(Identity(one.bookie_id, one) for one in found if one is not None)


def stored_identities(identities: Iterable[Identity]) -> list[BookieIdentity]:
    """Return the identities that `read_identities` returned, in the form that the store needs."""
    return [cast("BookieIdentity", one.token) for one in identities]
