"""The path and the data of the locks of re-replication, as Apache's tools write them."""

from __future__ import annotations

import pytest

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.underreplication import encode_holder, lock_path


@pytest.mark.parametrize(
    ("ledger_id", "name"),
    [(0, "urL0000000000"), (7, "urL0000000007"), (12_345_678_901, "urL12345678901")],
)
def test_a_lock_has_apaches_path(ledger_id: int, name: str) -> None:
    assert lock_path(ledger_id) == f"/underreplication/locks/{name}"


def test_the_data_is_a_text_message() -> None:
    assert encode_holder("10.0.0.1:3181") == b'bookieId: "10.0.0.1:3181"\n'
    assert encode_holder('a"b') == b'bookieId: "a\\"b"\n'


def test_a_negative_ledger_has_no_lock() -> None:
    with pytest.raises(WireFormatError):
        lock_path(-1)
