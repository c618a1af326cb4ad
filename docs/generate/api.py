"""Writes the reference of the Python API: names that users import, and classes of handles."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import ledgerlog_spark as ll
from ledgerlog_spark import testing
from ledgerlog_spark.client.blocking.reader import BlockingReadHandle
from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle
from ledgerlog_spark.client.handles.reader import ReadHandle
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.log.blocking.leader import BlockingLeader
from ledgerlog_spark.log.blocking.logs import BlockingLog, BlockingLogs
from ledgerlog_spark.log.blocking.records import BlockingRecordLog
from ledgerlog_spark.log.clients import BlockingLogClient, LogClient
from ledgerlog_spark.log.leader.leader import Leader
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.reading.record_log import RecordLog

INTRODUCTION = """\
# Python API

```python
import ledgerlog_spark as ll
```

"""

HANDLES_INTRODUCTION = """\
## Handles

`ll.connect` returns a blocking client, and `ll.aio.connect` returns a client for programs with an event loop. Both
clients have the same methods. Where this page has `async def`, the blocking handle has a plain method. Where this page
has an asynchronous iterator, the blocking handle has an iterator.

All blocking clients, writers, readers and leaders have `close()`, and can be used in a `with` statement. In the asyncio
API, a client has `aclose()` and `async with`, a reader has `aclose()`, and a writer and a leader have `close()`.
Several threads can use the same blocking client, writer or leader.

"""

TESTING_INTRODUCTION = """\
## Fakes for your tests

`ledgerlog_spark.testing` is a cluster in memory, without ports, processes or files.
[Test your programs](../how-to/test-your-programs.md) has an example.

"""

HANDLES: list[tuple[str, type[Any], type[Any]]] = [
    ("A client", LogClient, BlockingLogClient),
    ("Writing a ledger", WriteHandle, BlockingWriteHandle),
    ("Reading a ledger", ReadHandle, BlockingReadHandle),
    ("Leading a log", Leader, BlockingLeader),
    ("Reading a log of records or rows", RecordLog, BlockingRecordLog),
    ("All logs of a cluster", Logs, BlockingLogs),
    ("One log of either kind", Log, BlockingLog),
]
"""Title of each section, its asyncio class, and the blocking counterpart of this class."""


def members_of(handle: type[Any], blocking: type[Any]) -> list[str]:
    """Return the public names that both classes have."""
    return sorted(
        name for name in dir(handle) if not name.startswith("_") and name in dir(blocking)
    )


def public_objects() -> dict[str, str]:
    """Return the functions and classes in the package's `__all__`, each with its path."""
    found = {name: getattr(ll, name) for name in sorted(ll.__all__, key=_functions_first)}
    return {
        f"ledgerlog_spark.{name}": f"{each.__module__}.{each.__qualname__}"
        for name, each in found.items()
        if not isinstance(each, ModuleType)
    }


def testing_objects() -> dict[str, str]:
    """Return each function and class in `ledgerlog_spark.testing`, with its path."""
    found = ((name, getattr(testing, name)) for name in testing.__all__)
    return {
        f"ledgerlog_spark.testing.{name}": f"{each.__module__}.{each.__qualname__}"
        for name, each in sorted(found, key=lambda pair: (isinstance(pair[1], type), pair[0]))
    }


def _functions_first(name: str) -> tuple[bool, str]:
    return isinstance(getattr(ll, name), type), name


def _object(path: str, name: str, level: int = 2) -> str:
    """Return the section about a public object. The heading is its public name and signature."""
    options = (
        "show_root_heading: true", "show_root_toc_entry: true", f"heading_level: {level}", f"heading: {name}",
        f"toc_label: {name.removeprefix('ledgerlog_spark.')}",
    )  # fmt: skip
    lines = [f"::: {path}", "    options:", *(f"      {option}" for option in options)]
    return "\n".join(lines) + "\n\n"


def _block(path: str, heading: str, level: int, members: list[str] | None = None) -> str:
    lines = [
        f"{'#' * level} {heading}\n",
        f"::: {path}",
        "    options:",
        "      show_root_heading: false",
        f"      heading_level: {level + 1}",
    ]
    if members is not None:
        lines += ["      inherited_members: true", f"      members: [{', '.join(members)}]"]
    return "\n".join(lines) + "\n\n"


def page() -> str:
    """Return the page about the Python API."""
    parts = [INTRODUCTION]
    parts += [_object(path, name) for name, path in public_objects().items()]
    parts.append(_object(f"{ll.aio.__name__}.connect", "ledgerlog_spark.aio.connect"))
    cluster = sorted(name for name in dir(Cluster) if not name.startswith("_"))
    parts.append(_block(f"{Cluster.__module__}.Cluster", "A local cluster", 2, cluster))
    parts.append(HANDLES_INTRODUCTION)
    parts += [
        _block(f"{handle.__module__}.{handle.__qualname__}", title, 3, members_of(handle, blocking))
        for title, handle, blocking in HANDLES
    ]
    parts.append(TESTING_INTRODUCTION)
    parts += [_object(path, name, level=3) for name, path in testing_objects().items()]
    return "".join(parts)
