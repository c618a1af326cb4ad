"""What the driver keeps between micro-batches (ledgerlog_spark.datasource.stream_job)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ledgerlog_spark.datasource import stream_job
from ledgerlog_spark.datasource.options import SourceOptions


def test_ids_of_logs_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    head = SimpleNamespace(properties={})
    log = SimpleNamespace(log_id="id", state=lambda: SimpleNamespace(head=head))
    monkeypatch.setattr(stream_job, "opened", lambda *_: log)
    for name in ("stored_schema", "storable", "check_bookies", "check_password"):
        monkeypatch.setattr(stream_job, name, lambda *_: None)
    monkeypatch.setattr(stream_job, "_log_ids", {})
    monkeypatch.setattr(stream_job, "LOGS_MAX", 5)
    for number in range(20):
        options = SourceOptions.parse({"log": f"log-{number}"}).for_write()
        stream_job._opened_state("uri", options, "{}")
    assert list(stream_job._log_ids) == [("uri", f"log-{number}") for number in range(15, 20)]
