"""`help()` of every public object is complete by itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.architecture.public import calls, reachable
from tests.architecture.trees import assert_none

HANDLES = {
    "BlockingLeader", "BlockingLog", "BlockingLogClient", "BlockingLogs", "BlockingRangeReader",
    "BlockingRangeWriter", "BlockingReadHandle", "BlockingRecordLog", "BlockingWriteHandle",
    "Leader", "Log", "LogClient", "Logs", "MemoryCluster", "OwnedCluster", "RangeWriter",
    "ReadHandle", "RecordLog", "WriteHandle",
}  # fmt: skip
"""The classes whose calls are checked. Other classes, mostly values, only need docstrings."""

RAISES_NOTHING = {
    "drain", "flush", "leave", "abort", "cut", "aclose", "remember",
}  # fmt: skip

CITATION = re.compile(r"\w+\.md#")
"""Users of `help()` do not have the pages."""


def undocumented(name: str, call: Any, function: Callable[..., Any]) -> Iterator[str]:
    """The parts that the docstring of a call lacks."""
    text = inspect.getdoc(call) or ""
    if not text:
        yield f"{name}: no docstring"
        return
    owner, _, member = name.rpartition(".")
    for seen in re.findall(r"[Ss]ee `([\w.]+)", text):
        first = seen.split(".")[0]
        if first not in reachable() and not hasattr(reachable().get(owner), first):
            yield f"{name}: see `{seen}`, which users cannot reach"
    if isinstance(call, property) or (owner and owner not in HANDLES):
        return
    parameters = [each for each in inspect.signature(function).parameters if each != "self"]
    if len(parameters) > 1 and "Args:" not in text and "rguments" not in text:
        yield f"{name}: no Args"
    written = inspect.unwrap(function)
    waits = inspect.iscoroutinefunction(written) or inspect.isasyncgenfunction(written)
    has_errors = "Raises:" in text or re.search(r"rrors (?:are those |as )?of `", text)
    if waits and member not in RAISES_NOTHING and not has_errors:
        yield f"{name}: no Raises"


def test_help_of_every_public_call_is_complete() -> None:
    lacking = [each for name, call, function in calls() for each in
               undocumented(name, call, function)]  # fmt: skip
    assert_none(lacking, "write what users need to know there; they see nothing else")


def test_every_class_of_users_has_a_docstring() -> None:
    bare = [name for name, each in reachable().items() if not (each.__doc__ or "").strip()]
    assert_none(bare, "say what it is")


def test_no_docstring_of_users_cites_a_page_of_the_repository() -> None:
    citing = {
        f"{name}: {found[0]}"
        for name, each in [*reachable().items(), *((name, call) for name, call, _ in calls())]
        for text in (inspect.getdoc(each) or "",)
        if (found := CITATION.search(text))
    }
    assert_none(citing, "say what the rule says, and cite the rule in a comment")


def test_a_citation_is_found() -> None:
    assert CITATION.search("Only the newest (LOGS.md#K7).")
    assert not CITATION.search("The file README.md")


def test_handles_are_reached() -> None:
    assert_none(HANDLES - reachable().keys(), "no annotation leads to it")


def test_a_bare_docstring_is_found() -> None:
    async def call(first: int, second: int) -> None:
        """See `Nowhere.call`."""

    found = "".join(undocumented("call", call, call))
    assert "Nowhere" in found
    assert "Args" in found
    assert "Raises" in found
