"""The index of the auditor: the names in the records of the last whole walk."""

from __future__ import annotations

from ledgerlog_spark.protocol.autorecovery.audit.index import LedgerIndex

AB, BC = frozenset("ab"), frozenset("bc")


def test_only_a_whole_walk_replaces_the_one_before() -> None:
    index = LedgerIndex()
    index.begin()
    index.note(1, AB)
    assert index.naming("a") == []
    assert [index.is_whole] == [False]
    index.end()
    assert index.naming("a") == [1]
    assert [index.is_whole] == [True]
    index.begin()
    index.note(2, BC)
    assert index.naming("c") == []
    assert index.naming("b") == [1]
    assert index.named == AB | BC
    index.end()
    assert index.naming("a") == []
    assert index.naming("cb") == [2]
    assert index.named == BC
    assert len(index) == 1


def test_a_walk_that_begins_again_forgets_what_it_had_read() -> None:
    index = LedgerIndex()
    index.begin()
    index.note(1, AB)
    index.begin()
    index.note(2, AB)
    index.end()
    assert index.naming("a") == [2]


def test_equal_sets_of_names_are_stored_once() -> None:
    index = LedgerIndex()
    index.begin()
    for ledger_id in range(1_000):
        index.note(ledger_id, frozenset(["a", f"b{ledger_id % 3}"]))
    index.end()
    assert len(index._sets) == 3
    assert index.naming(["b1"]) == list(range(1, 1_000, 3))
