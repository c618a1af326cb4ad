"""No decision of `ledgerlog_spark` depends on the wall clock of one machine.

Times that decide come from the store's clock (LOGS.md#G12), or are measured with a monotonic clock.
A wall clock only dates what people read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.architecture.trees import assert_none, modules, name, nodes

DATES = {
    "ledgerlog_spark/autorecovery/daemon.py": "lines of output",
    "ledgerlog_spark/autorecovery/replicate/store_requests.py": "reports of unreadable entries",
    "ledgerlog_spark/autorecovery/replicate/worker.py": "reports of progress and of failures",
    "ledgerlog_spark/cli/ledgers/losses.py": "when an operator gave entries up",
    "ledgerlog_spark/cli/vacations.py": "when an operator began a vacation",
    "ledgerlog_spark/client/handles/creation.py": "the creation of a ledger, in its record",
    "ledgerlog_spark/log/clock.py": "times that are shown",
    "ledgerlog_spark/testing/memory/nodes.py": "the clock of the store in memory",
    "ledgerlog_spark/upkeep/service.py": "lines of output",
}
"""The modules that read a wall clock, and what they date."""

WALL = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today"}


def wall_clocks(inside: Iterable[ast.AST]) -> Iterator[str]:
    """Uses of a wall clock."""
    for node in inside:
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node).replace("datetime.datetime.", "datetime.")
            if text in WALL:
                yield text
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield ast.unparse(node)


def test_only_listed_modules_read_a_wall_clock() -> None:
    found = {name(path): list(wall_clocks(nodes(path))) for path in modules("ledgerlog_spark")}
    reading = {module for module, uses in found.items() if uses}
    assert_none(reading - DATES.keys(), "use the store's clock, or a monotonic one")
    assert_none(DATES.keys() - reading, "remove it from the list")


def test_each_kind_of_use_is_found() -> None:
    for text in (
        "time.time()",
        "now = time.time_ns",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "from time import time",
    ):
        assert list(wall_clocks(ast.walk(ast.parse(text)))), text
    for text in ("time.monotonic()", "loop.time()", "datetime.fromtimestamp(0)", "clock.now()"):
        assert not list(wall_clocks(ast.walk(ast.parse(text)))), text
