"""The choice of the cluster for a program (ledgerlog_spark.connect)."""

from __future__ import annotations

import pytest

from ledgerlog_spark.composition import service_uri
from ledgerlog_spark.model import SERVICE_URI_DEFAULT, SERVICE_URI_VARIABLE


def test_the_service_uri_is_the_first_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVICE_URI_VARIABLE, "zk://env/ledgers")
    assert service_uri("option", "configured") == "option"
    assert service_uri(None, "configured") == "configured"
    assert service_uri(None, None) == service_uri() == "zk://env/ledgers"
    monkeypatch.delenv(SERVICE_URI_VARIABLE)
    assert service_uri(None, "") == SERVICE_URI_DEFAULT
