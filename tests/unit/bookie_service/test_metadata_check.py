"""The check of a ledger's metadata before adds for which a fence may be forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.ports import MetadataAnswer, Standing
from bookie_server.service.membership.ledger_records import StoreMetadataCheck
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.testing.cluster import memory_metadata

MINE = LedgerMetadata(Quorum(2, 2, 2), (Fragment(0, ("b1", "b2")),))
REPLACED = replace(MINE, fragments=(Fragment(0, ("b1", "b2")), Fragment(7, ("b2", "b3"))))


@pytest.mark.parametrize(
    ("record", "standing"),
    [
        (MINE, Standing.OPEN_WITH_ME),
        (REPLACED, Standing.OPEN_WITHOUT_ME),
        (MINE.in_recovery(), Standing.NOT_WRITABLE),
        (REPLACED.in_recovery(), Standing.NOT_WRITABLE),
        (REPLACED.closed(last_entry_id=9, length=90), Standing.NOT_WRITABLE),
        (None, Standing.NOT_WRITABLE),
    ],
    ids=["mine", "replaced", "recovery", "recovery of another ensemble", "closed", "gone"],
)
async def test_only_a_ledger_that_may_have_been_fenced_is_not_writable(
    record: LedgerMetadata | None, standing: Standing
) -> None:
    stores = memory_metadata()
    await stores.initialize()
    created = 0
    if record is not None:
        created = (await stores.ledgers.create(5, record)).version.incarnation
        assert created > 0
    checked = await StoreMetadataCheck(stores.ledgers, "b1", 1_000).check(5)
    assert checked == MetadataAnswer(standing, created)
    await stores.close()
