"""Hosts wait with a deadline, or state what ends the wait (ledgerlog_spark/waits.py)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture import trees
from tests.architecture.trees import assert_none, modules, nodes_and_above, walked

ROOT = trees.ROOT / "ledgerlog_spark"
HOSTS = ("client", "datasource", "log", "transport", "metadata", "upkeep")
MODULES = [path for folder in HOSTS for path in modules(f"ledgerlog_spark/{folder}")]

Above = tuple[ast.AST, ...]

OF_A_QUEUE_OR_EVENT = {"wait", "get", "join", "acquire"}
"""Without arguments, these wait for other code. A store's `get(path)` has a deadline."""

OF_ASYNCIO = {"asyncio.shield", "asyncio.wait", "asyncio.to_thread"}

BLOCKING = {
    "client/blocking/add_future.py _wait": "the caller's; the append ends by its deadlines",
    "client/blocking/batch_queue.py taken": "the loop puts an end after the last batch",
    "client/blocking/writer.py put": "what was sent or failed makes room",
    "client/blocking/loop_thread.py call": "the coroutine ends: its waits are those of this test",
}
"""Threads that wait for the loop, and the event that ends the wait."""

PAUSES = {
    "client/hole_reports.py _report": "REPORT_RETRY",
    "client/lost_members.py _look_regularly": "no writer is open; `stop` cancels it",
    "client/lost_members.py _notify": "all writers are notified",
    "client/handles/follower.py _reload": "an error that is not retriable; `cancel` ends the task",
    "datasource/stream/watched_logs.py patiently": "PATIENCE",
    "log/reading/record_reader.py _relisted": "another error; a closed client; the caller",
    "metadata/registration.py _keep": "a bookie is announced until it stops",
    "metadata/replication/election.py _follow": "a candidate follows the votes until it leaves",
    "metadata/zookeeper/session.py _read": "the deadline, which `_wait_until_connected` looks at",
    "upkeep/service.py keep_up": "a signal cancels it",
    "upkeep/service.py run": "a signal cancels it",
    "upkeep/upkeep.py leased": "wait_seconds",
    "upkeep/upkeep.py _released": "RELEASE_SECONDS_MAX",
}
"""Loops that sleep between attempts, and the event that ends each loop."""

IN_A_THREAD = {
    "metadata/zookeeper/session.py is_orphaned": "PROBE_SECONDS is the deadline of each request",
    "metadata/zookeeper/session.py end_session": "kazoo's own deadlines",
}


ANY_DEADLINE = {
    "client/client.py aclose": "whosever: the reports that still wait are dropped",
    "client/lost_members.py _look_regularly": "whosever: the store does not answer",
    "client/host/effects.py _cas": "whosever: it is not known what was written",
    "client/host/effects.py _load": "whosever: no answer came",
    "client/host/effects.py _read_identities": "whosever: no answer came",
    "client/users.py leave": "waits for tasks that are not looked at",
    "log/reading/end_watch.py _follow": "waits for an event",
    "metadata/registration.py _until_alone": "waits for an event",
    "metadata/zookeeper/session.py _answer": "passes them on",
    "metadata/zookeeper/session.py _read": "whosever, kazoo's too: no answer came",
    "metadata/zookeeper/session.py _write": "whosever, kazoo's too: no answer came",
    "metadata/zookeeper/session.py close": "waits for a thread that is left behind then",
    "transport/v2/connection.py lost": "waits for a socket that was closed",
    "transport/v2/link.py _connect": "whosever, the socket's too: the bookie is not reached",
}
"""Functions that catch every `TimeoutError`, even that of a socket, with the reason."""


def has_deadline(above: Above) -> bool:
    """Whether the code is within `async with asyncio.timeout(...)` or `Deadline(...)`."""
    return any(
        isinstance(node, ast.AsyncWith)
        and any(
            ast.unparse(item.context_expr).startswith(("asyncio.timeout", "Deadline("))
            for item in node.items
        )
        for node in above
    )


def taken_timeouts(path: Path) -> Iterator[str]:
    """Functions that handle or suppress `TimeoutError`."""
    for node, above in nodes_and_above(path):
        names: Iterable[ast.AST] = ()
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            names = ast.walk(node.type)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            names = ast.walk(node)
        if any(isinstance(name, ast.Name) and name.id == "TimeoutError" for name in names):
            yield place(path, above)


def given_coroutines(above: Above) -> set[str]:
    """Parameters that are coroutines. Their waits are checked in the code that creates them."""
    return {
        argument.arg
        for node in above
        if isinstance(node, ast.AsyncFunctionDef)
        for argument in node.args.args
        if argument.annotation is not None
        and ast.unparse(argument.annotation).startswith(("Awaitable", "Coroutine"))
    }


def is_bare(awaited: ast.expr, above: Above) -> bool:
    if isinstance(awaited, ast.Name) and awaited.id in given_coroutines(above):
        return False
    if not isinstance(awaited, ast.Call):
        return True
    if any(keyword.arg == "timeout" for keyword in awaited.keywords):
        return False
    if ast.unparse(awaited.func) in OF_ASYNCIO:
        return True
    name = awaited.func.attr if isinstance(awaited.func, ast.Attribute) else ""
    return name in OF_A_QUEUE_OR_EVENT and not awaited.args


def place(path: Path, above: Above) -> str:
    functions = [n.name for n in above if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return f"{path.relative_to(ROOT)} {functions[-1] if functions else ''}"


def bare_waits(path: Path) -> Iterator[tuple[str, str]]:
    for node, above in nodes_and_above(path):
        if isinstance(node, ast.Await) and is_bare(node.value, above) and not has_deadline(above):
            yield place(path, above), ast.unparse(node)


def blocking_waits(path: Path) -> Iterator[tuple[str, str]]:
    """Calls that block a thread: waits for a condition, a queue, another thread, a future."""
    for node, above in nodes_and_above(path):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        is_in_coroutine = isinstance(
            next((n for n in reversed(above) if "FunctionDef" in type(n).__name__), None),
            ast.AsyncFunctionDef,
        )
        what = f"{ast.unparse(node.func.value)}.{node.func.attr}".lower()
        is_wait = what.endswith((".wait", "_came.get", "thread.join")) or what == "future.result"
        is_passed_on = above and isinstance(above[-1], ast.Call | ast.Await)
        if is_wait and not is_in_coroutine and not is_passed_on and "asyncio" not in what:
            yield place(path, above), ast.unparse(node)


def pauses(path: Path) -> Iterator[str]:
    """Functions that sleep within a loop, which may never end."""
    for node, above in nodes_and_above(path):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"time.sleep", "asyncio.sleep"}:
            is_repeated = any(isinstance(n, ast.While | ast.For | ast.AsyncFor) for n in above)
            if is_repeated and ast.unparse(node.args[0]) != "0":
                yield place(path, above)


def test_no_host_waits_without_a_deadline_or_a_reason() -> None:
    assert_none(
        (
            f"{where}: {wait}"
            for path in MODULES
            for where, wait in bare_waits(path)
            if where not in IN_A_THREAD
        ),
        "use waits.within(..., seconds), or waits.forever(..., reason)",
    )


def test_every_thread_that_waits_is_listed_with_what_ends_the_wait() -> None:
    found = {where for path in MODULES for where, _ in blocking_waits(path)}
    stops = {"client/blocking/loop_thread.py stop"}  # has a deadline: join(seconds)
    assert_none(found - stops ^ BLOCKING.keys(), "BLOCKING has those that are there, and no other")


def test_every_loop_that_sleeps_is_listed_with_what_ends_it() -> None:
    found = {where for path in MODULES for where in pauses(path)}
    assert_none(found ^ PAUSES.keys(), "PAUSES has those that are there, and no other")


def test_no_host_takes_the_deadline_of_others_for_its_own() -> None:
    found = {where for path in MODULES for where in taken_timeouts(path)}
    assert_none(found ^ ANY_DEADLINE.keys(), "use waits.Deadline(seconds, error)")


def test_what_is_allowed_is_still_there() -> None:
    found = {where for path in MODULES for where, _ in bare_waits(path)}
    assert_none(IN_A_THREAD.keys() - found, "no exception is needed any more")


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("await self._done", True),
        ("await asyncio.shield(task)", True),
        ("await asyncio.wait(tasks)", True),
        ("await event.wait()", True),
        ("await queue.get()", True),
        ("await asyncio.wait(tasks, timeout=1)", False),
        ("await self._tree.get(path)", False),
        ("await forever(self._done, 'it ends')", False),
        ("await within(self._done, 3)", False),
        ("async with asyncio.timeout(3):\n        await self._done", False),
        ("async with Deadline(3, late):\n        await self._done", False),
    ],
)
def test_the_rule_tells_bare_waits_from_others(code: str, is_found: bool) -> None:
    path = ROOT / "client" / "none.py"
    tree = ast.parse(f"async def f(self):\n    {code}\n")
    found = [
        node
        for node, above in walked(tree)
        if isinstance(node, ast.Await) and is_bare(node.value, above) and not has_deadline(above)
    ]
    assert bool(found) == is_found
    assert place(path, ()).startswith("client/none.py")
