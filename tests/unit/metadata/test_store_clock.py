"""The store's clock, as a process estimates it."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.metadata.logs.store import CLOCK_AGE_MS_MAX, CLOCK_ATTEMPTS_MAX
from ledgerlog_spark.metadata.store_clock import StoreClock, elapsed_ns
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.zookeeper.requests import written_ms_of
from ledgerlog_spark.model import Version
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree
from tests.unit.log.log_values import new_head


class Elapsed:
    def __init__(self) -> None:
        self.ms = 77

    def __call__(self) -> int:
        return self.ms * 1_000_000


def test_clock_counts_on_from_the_newest_answer_and_never_before_it() -> None:
    elapsed = Elapsed()
    clock = StoreClock(elapsed)
    assert clock.estimate_ms() is None
    clock.note(1_000)
    assert clock.estimate_ms() == 1_000
    elapsed.ms += 250
    assert clock.estimate_ms() == 1_250
    clock.note(1_240)
    assert clock.estimate_ms() == 1_240, "the store is asked, not this machine"
    clock.note(900)
    assert clock.estimate_ms() == 900, "one answer that was dated ahead counts until the next"


def test_clock_is_not_known_any_more_when_the_answer_is_too_old() -> None:
    elapsed = Elapsed()
    clock = StoreClock(elapsed)
    clock.note(1_000)
    elapsed.ms += 60_000
    assert clock.estimate_ms(60_000) == 61_000
    elapsed.ms += 1
    assert clock.estimate_ms(60_000) is None
    assert clock.estimate_ms() == 61_001


def test_elapsed_time_only_rises() -> None:
    first = elapsed_ns()
    assert elapsed_ns() >= first


class Stat:
    mtime = 5_000


@pytest.mark.parametrize(
    ("results", "found"),
    [
        ([Stat()], 5_000),
        ([None, True, ("/path", Stat())], 5_000),
        ([True, None], None),
        ([], None),
    ],
)
def test_time_of_a_transaction_is_that_of_any_node_that_it_wrote(
    results: list[Any], found: int | None
) -> None:
    assert written_ms_of(results) == found


class DatedTree(MemoryTree):
    """A tree whose clock is known only from its answers, like that of ZooKeeper."""

    def __init__(self, nodes: MemoryNodes, elapsed: Elapsed) -> None:
        super().__init__(nodes)
        self.told = StoreClock(elapsed)
        self.sets = 0

    @property
    def clock(self) -> StoreClock:
        return self.told

    async def set(self, path: str, data: bytes, version: Version | None) -> Version:
        self.sets += 1
        written = await super().set(path, data, version)
        self.told.note(self.nodes.estimate_ms())
        return written


async def test_dates_cost_a_write_only_when_the_last_answer_is_old() -> None:
    now_ms, elapsed = [1_000_000], Elapsed()
    tree = DatedTree(MemoryNodes(lambda: now_ms[0]), elapsed)
    stores = MetadataStores.on(tree, "/ledgers")
    await stores.initialize()
    assert stores.logs.clock_ms() == 0
    assert await stores.logs.recent_ms() == 1_000_000
    asked = tree.sets
    for _ in range(10):
        elapsed.ms += CLOCK_AGE_MS_MAX // 10
        await stores.logs.recent_ms()
    assert tree.sets == asked
    elapsed.ms += 1
    now_ms[0] = 7_000_000
    assert await stores.logs.recent_ms() == 7_000_000
    assert tree.sets > asked
    assert stores.logs.clock_ms() == 7_000_000


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
@pytest.mark.parametrize("is_exact", [False, True], ids=["recent", "exact"])
async def test_a_lost_answer_of_the_clock_is_asked_for_again_and_not_for_ever(
    fault: Fault, is_exact: bool
) -> None:
    """Otherwise a commit would fail, although its reads are retried."""
    tree = DatedTree(MemoryNodes(lambda: 1_000_000), Elapsed())
    stores = MetadataStores.on(tree, "/ledgers")
    await stores.initialize()
    head, pages = new_head()
    await stores.logs.create_log(head, pages)

    async def asked() -> int:
        tree.told = StoreClock(Elapsed())
        return await (stores.logs.now_ms(head.log_id) if is_exact else stores.logs.recent_ms())

    tree.inject(*[fault] * (CLOCK_ATTEMPTS_MAX - 1))
    assert await asked() == 1_000_000
    tree.inject(*[fault] * CLOCK_ATTEMPTS_MAX)
    with pytest.raises(
        MetadataUnavailableError, match="could not be read: 3 answers were lost"
    ) as raised:
        await asked()
    assert raised.value.definite
