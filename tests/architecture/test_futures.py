"""A future of a bookie is given a value only if nobody cancelled it: who waits may be gone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.architecture.test_waits import walked

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2] / "bookie_server"


def settled_blindly(code: str) -> Iterator[str]:
    """What is handed over without a look at `done()` of the same future."""
    for node, above in walked(ast.parse(code)):
        if isinstance(node, ast.Attribute) and node.attr in {"set_result", "set_exception"}:
            asked = f"{ast.unparse(node.value)}.done()"
            tests = [ast.unparse(each.test) for each in above if isinstance(each, ast.If)]
            if not any(asked in test for test in tests):
                yield ast.unparse(node)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.name)
def test_no_future_is_settled_that_may_be_cancelled(path: Path) -> None:
    assert not list(settled_blindly(path.read_text())), "use wake_ups.resolve(future, value)"


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
    assert bool(list(settled_blindly(code))) == is_found
