"""A future of a bookie gets a value only if it is not cancelled: its waiter may be gone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.trees import assert_none, modules, name, tree, walked


def settled_blindly(module: ast.Module) -> Iterator[str]:
    """Values that are set without a check of `done()` of the same future."""
    for node, above in walked(module):
        if isinstance(node, ast.Attribute) and node.attr in {"set_result", "set_exception"}:
            asked = f"{ast.unparse(node.value)}.done()"
            tests = [ast.unparse(each.test) for each in above if isinstance(each, ast.If)]
            if not any(asked in test for test in tests):
                yield f"{node.lineno}: {ast.unparse(node)}"


def test_no_future_is_settled_that_may_be_cancelled() -> None:
    assert_none(
        (
            f"{name(path)}:{found}"
            for path in modules("bookie_server")
            for found in settled_blindly(tree(path))
        ),
        "use wake_ups.resolve(future, value)",
    )


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("future.set_result(None)", True),
        ("log.when_durable(7, durable.set_result)", True),
        ("if other.done():\n    future.set_exception(error)", True),
        ("if not future.done():\n    future.set_result(None)", False),
        ("if future.done():\n    pass\nelse:\n    future.set_exception(error)", False),
        ("class Future:\n    def set_result(self, result): ...", False),
    ],
)
def test_the_rule_tells_blind_from_careful(code: str, is_found: bool) -> None:
    assert bool(list(settled_blindly(ast.parse(code)))) == is_found
