"""Log lines of a bookie name ledgers, entries and peers in fields of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.trees import assert_none, modules, name, tree

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
ONE_NAME = {
    "ledger": "ledger_id",
    "ledgers": "ledger_ids",
    "entry": "entry_id",
    "entries": "entry_ids",
    "host": "peer",
    "hosts": "peers",
    "address": "peer",
    "client": "peer",
}
"""Words for fields that have another name, and this name."""


def calls_of(module: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in LEVELS and "logger" in ast.unparse(node.func.value):
            yield node


def faults_of(call: ast.Call) -> Iterator[str]:
    """The faults of a log call: values in a text, or a field with another name."""
    if len(call.args) != 1 or not isinstance(call.args[0], ast.Constant):
        yield "the event is no constant"
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.JoinedStr):
            yield f"{keyword.arg} is composed of values, which belong into fields"
        if keyword.arg in ONE_NAME:
            yield f"{keyword.arg} has the name {ONE_NAME[keyword.arg]}"
        is_text_of_error = keyword.arg == "reason" and ast.unparse(keyword.value) == "str(error)"
        if is_text_of_error:
            yield "the fields of the error are lost; use fields_of"


def test_log_calls_have_constant_events_and_the_same_fields() -> None:
    calls = [(path, call) for path in modules("bookie_server") for call in calls_of(tree(path))]
    assert len(calls) > 20
    assert_none(
        (f"{name(path)}:{call.lineno}: {each}" for path, call in calls for each in faults_of(call)),
        "see the other log calls",
    )


@pytest.mark.parametrize(
    "call",
    [
        '_logger.info(f"ledger {ledger_id}")',
        '_logger.info("closed %s", peer)',
        '_logger.warning("closed", reason=f"entry {entry_id} is damaged")',
        '_logger.warning("closed", ledger=7)',
        'get_logger("x").error("failed", host=peer)',
        '_session_logger.error("failed", reason=str(error))',
    ],
)
def test_a_wrong_log_call_is_found(call: str) -> None:
    (found,) = calls_of(ast.parse(call))
    assert list(faults_of(found))


def test_a_right_log_call_is_right() -> None:
    (found,) = calls_of(ast.parse('_logger.info("closed", peer=peer, reason="it is slow")'))
    assert not list(faults_of(found))
