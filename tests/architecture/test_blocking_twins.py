"""Every blocking call has the parameters, the result and the docstring of its coroutine."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.client.blocking.derived import Shown
from ledgerlog_spark.client.blocking.reader import BlockingReadHandle
from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.reader import ReadHandle
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.log.blocking.leader import BlockingLeader
from ledgerlog_spark.log.blocking.logs import BlockingLog, BlockingLogs, BlockingRangeWriter
from ledgerlog_spark.log.blocking.records import BlockingRecordLog
from ledgerlog_spark.log.clients import BlockingLogClient, LogClient
from ledgerlog_spark.log.committing.range_writer import RangeWriter
from ledgerlog_spark.log.leader.leader import Leader
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.reading.record_log import RecordLog
from tests.architecture.trees import assert_none

TWINS: dict[type, type] = {
    LedgerClient: BlockingClient,
    LogClient: BlockingLogClient,
    WriteHandle: BlockingWriteHandle,
    ReadHandle: BlockingReadHandle,
    Leader: BlockingLeader,
    RecordLog: BlockingRecordLog,
    Logs: BlockingLogs,
    Log: BlockingLog,
    RangeWriter: BlockingRangeWriter,
}

ONLY_ASYNC = {
    "LedgerClient": {
        "create_registered_ledger": "takes a coroutine function; for `log/`",
        "new_ledger_ids": "for `create_registered_ledger`",
        "recent_records": "`BlockingLogs.records`",
        "remember": "`BlockingLogs.remember`",
        "entry_copies": "for `Log.check`",
        "check_bookies": "for the data source, which runs it on the loop",
        "when_closed": "calls back on the loop; for `log/`",
        "check_open": "every blocking call checks it",
    },
    "WriteHandle": {
        "drain": "blocking appends wait for room themselves",
        "send_now": "blocking appends are sent at once",
        "entries_pending": "`flush` waits for them",
        "abandon": "the close of the client",
        "ensemble": "for `LostMembers`; users read `metadata`",
        "member_lost": "for `LostMembers`",
    },
    "ReadHandle": {
        "follow": "calls back on the loop; for `log/`",
        "watched_entries": "what a follower brought",
        "take_rise": "for a follower",
        "reload": "for a follower",
        "read_last_add_confirmed": "`refresh`",
    },
    "Leader": {
        "drain": "blocking appends wait for room themselves",
        "send_now": "blocking appends are sent at once",
        "records_pending": "`flush` waits for them",
        "open": "`open_log` opens it",
        "abandon": "the close of the client",
        "leave": "the close of the client",
    },
    "Logs": {
        "floor": "for the replication worker",
        "sweeper": "`BlockingLogs.sweep`",
    },
    "Log": {
        "lead": "`open_log` opens it",
    },
}
ONLY_BLOCKING = {
    "LedgerClient": {
        "run": "the event loop for layers above",
        "is_orphaned": "for long processes",
        "is_closed": "for long processes",
    },
    "Logs": {
        "sweep": "`Logs.sweeper`",
        "records": "`LedgerClient.recent_records`",
        "remember": "`LedgerClient.remember`",
    },
    "ReadHandle": {"metadata": "an attribute"},
    "RangeWriter": {"rows": "an attribute", "size_bytes": "an attribute"},
    "Log": {"begin_ranges": "reads ahead of several ranges", "picture": "for notebooks"},
}
RENAMED = {"aclose": "close"}
OTHER_NAME = {**RENAMED, **{new: old for old, new in RENAMED.items()}}
OTHER_PARAMETERS = {
    ("ReadHandle", "read_batches"): {
        "place": "`BlockingLog.begin_ranges` gives places",
        "slices": "for `BlockingLog.begin_ranges`",
    },
    ("Log", "read_range"): {
        "place": "`BlockingLog.begin_ranges` gives places",
        "slices": "for `BlockingLog.begin_ranges`",
    },
}
OTHER_DOCSTRING = {
    "append_async": "a `concurrent.futures.Future`, which may block",
    "append_batch_async": "the same",
    "append_many_async": "the same",
    "append_rows_async": "the same",
}


def calls(of: type) -> dict[str, Any]:
    """Public methods and properties, including inherited ones."""
    found = inspect.classify_class_attrs(of)
    return {
        each.name: each.object
        for each in found
        if not each.name.startswith("_") and (callable(each.object) or _is_property(each.object))
    }


def _is_property(member: Any) -> bool:
    return isinstance(member, property)


def handwritten(ours: type, theirs: type) -> Iterator[str]:
    """Calls of both classes with a body in the blocking class, so not from `derived` or `Shown`."""
    coroutines = calls(ours)
    for name, call in calls(theirs).items():
        is_derived = hasattr(call, "__wrapped__") or isinstance(call, Shown)
        if OTHER_NAME.get(name, name) in coroutines and not is_derived:
            yield f"{theirs.__name__}.{name}"


def lacking(ours: type, theirs: type, excused: Iterable[str] = ()) -> Iterator[str]:
    """Calls of `ours` that `theirs` does not have."""
    has = calls(theirs)
    for name in calls(ours):
        if not {name, OTHER_NAME.get(name)} & has.keys() and name not in excused:
            yield f"{ours.__name__}.{name}"


def excused_of(coroutines: type, excuses: dict[str, dict[str, str]]) -> set[str]:
    """Names that are excused for a class or one of its bases."""
    return {name for kind in coroutines.__mro__ for name in excuses.get(kind.__name__, ())}


def shape_of(call: Callable[..., Any], left_out: dict[str, str]) -> list[str]:
    """The parameters and the result, in a form that is the same for coroutines."""
    signature = inspect.signature(call)
    parameters = [
        str(each).replace("'", "")
        for each in list(signature.parameters.values())[1:]
        if each.name not in left_out
    ]
    return [*parameters, result_of(signature)]


def result_of(signature: inspect.Signature) -> str:
    """The result, in the form of a blocking call."""
    given = str(signature.return_annotation)
    for pattern, blocking in (
        (r"Async(?:Generator|Iterator)\[(.*?)(?:, None)?\]$", r"Iterator[\1]"),
        (r"asyncio\.Future", "AddFuture"),
        (r"\bBlocking(\w+)", r"\1"),
    ):
        given = re.sub(pattern, blocking, given)
    return given


def differences(ours: type, theirs: type) -> Iterator[str]:
    """Calls of both classes with different shapes or docstrings."""
    blocking = calls(theirs)
    for name, method in calls(ours).items():
        twin = blocking.get(RENAMED.get(name, name))
        if twin is None:
            continue
        where = f"{ours.__name__}.{name}"
        if method.__doc__ != twin.__doc__ and name not in OTHER_DOCSTRING:
            yield f"{where}: docstring"
        if isinstance(method, property):
            continue
        left_out = OTHER_PARAMETERS.get((ours.__name__, name), {})
        if shape_of(method, left_out) != shape_of(twin, {}):
            yield f"{where}: {shape_of(method, left_out)}, blocking {shape_of(twin, {})}"
        overloads = [[shape_of(each, {}) for each in typing.get_overloads(of)]
                     for of in (method, twin)]  # fmt: skip
        if overloads[0] != overloads[1]:
            yield f"{where}: overloads {overloads[0]}, blocking {overloads[1]}"


def test_no_call_lacks_its_blocking_twin() -> None:
    missing = [
        name
        for ours, theirs in TWINS.items()
        for name in lacking(ours, theirs, excused_of(ours, ONLY_ASYNC))
    ]
    assert_none(missing, "derive it in the blocking class, or list it in ONLY_ASYNC")


def test_no_blocking_call_lacks_its_coroutine() -> None:
    extra = [
        name
        for ours, theirs in TWINS.items()
        for name in lacking(theirs, ours, excused_of(ours, ONLY_BLOCKING))
    ]
    assert_none(extra, "add the coroutine, or list it in ONLY_BLOCKING")


def test_twins_have_the_same_parameters_results_and_docstrings() -> None:
    different = [each for ours, theirs in TWINS.items() for each in differences(ours, theirs)]
    assert_none(different, "derive the blocking call from the coroutine")


def test_what_is_excused_is_there() -> None:
    names = {a.__name__: (a, b) for a, b in TWINS.items()}
    gone = [
        f"{kind}.{name}"
        for excused, side in ((ONLY_ASYNC, 0), (ONLY_BLOCKING, 1))
        for kind, each in excused.items()
        for name in each
        if name not in calls(names[kind][side]) or name in calls(names[kind][1 - side])
    ]
    assert_none(gone, "it is on both sides, or on none: take it out of the list")


def test_a_difference_is_found() -> None:
    class Ours:
        async def call(self, size: int) -> int:
            """Says so."""
            return size

        async def missing(self) -> None: ...

    class Theirs:
        def call(self, size: int = 1) -> int:
            """Says so."""
            return size

    assert list(lacking(Ours, Theirs)) == ["Ours.missing"]
    (found,) = differences(Ours, Theirs)
    assert "size: int = 1" in found
