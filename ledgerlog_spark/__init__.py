"""A replicated log for Apache Spark, which uses the protocol of Apache BookKeeper.

    import ledgerlog_spark as ll

    with ll.connect("zk://127.0.0.1:2181/ledgers") as client:
        ledger = client.create_ledger()
        entry_id = ledger.append(b"payload")
        ledger.close()
        with client.open_log("orders", lead=True) as log:
            position = log.append(b"record")

Each public name is imported at its first use, so the import of the package itself is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledgerlog_spark import aio, errors
    from ledgerlog_spark.client.handles.reader import Entry
    from ledgerlog_spark.client.settings import ClientSettings
    from ledgerlog_spark.composition import connect
    from ledgerlog_spark.datasource.configure import configure
    from ledgerlog_spark.datasource.jar import jar_path
    from ledgerlog_spark.local.cluster import local_cluster
    from ledgerlog_spark.log.reading.row_cursor import RowBatch
    from ledgerlog_spark.log.records import Record
    from ledgerlog_spark.model import Position

_WHERE = {
    "ClientSettings": "ledgerlog_spark.client.settings",
    "Entry": "ledgerlog_spark.client.handles.reader",
    "Position": "ledgerlog_spark.model",
    "Record": "ledgerlog_spark.log.records",
    "RowBatch": "ledgerlog_spark.log.reading.row_cursor",
    "configure": "ledgerlog_spark.datasource.configure",
    "connect": "ledgerlog_spark.composition",
    "jar_path": "ledgerlog_spark.datasource.jar",
    "local_cluster": "ledgerlog_spark.local.cluster",
}
_MODULES = ("aio", "errors")

__all__ = [
    "ClientSettings",
    "Entry",
    "Position",
    "Record",
    "RowBatch",
    "aio",
    "configure",
    "connect",
    "errors",
    "jar_path",
    "local_cluster",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, and store it in this module."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _WHERE:
        found = getattr(importlib.import_module(_WHERE[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
