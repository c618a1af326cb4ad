"""docs/LIMITS.md names a bound for each container of a client that can grow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.trees import ROOT, assert_none, modules, text, tree

PACKAGE = ROOT / "ledgerlog_spark"
FOLDERS = ("client", "datasource", "transport")
MODULES = [path for folder in FOLDERS for path in modules(f"ledgerlog_spark/{folder}")]

CONTAINERS = {
    "AppendQueue",
    "ChunkPool",
    "FrameSplitter",
    "LifoQueue",
    "OrderedDict",
    "PriorityQueue",
    "Queue",
    "SimpleQueue",
    "WeakKeyDictionary",
    "WeakSet",
    "WeakValueDictionary",
    "array",
    "bytearray",
    "defaultdict",
    "deque",
    "dict",
    "list",
    "set",
}
CACHES = {"cache", "lru_cache"}
ROW = re.compile(
    r"^\| `((?:client|datasource|transport)/\S+\.py)` `(\w+)` \| (.+?) \|$", re.MULTILINE
)


def may_grow(value: ast.expr) -> bool:
    """Whether this creates a container that can grow."""
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else ast.unparse(value.func)
    has_bound = any(keyword.arg in {"maxlen", "maxsize"} for keyword in value.keywords)
    return name.partition("[")[0] in CONTAINERS and not has_bound


def is_constant(name: str, value: ast.expr) -> bool:
    """Whether this is a constant table: its name is in capitals, and it is not empty."""
    is_filled = bool(getattr(value, "elts", None) or getattr(value, "keys", None))
    is_filled = is_filled or isinstance(value, ast.ListComp | ast.DictComp | ast.SetComp)
    return name.strip("_").isupper() and is_filled


def containers(module: ast.Module) -> Iterator[str]:
    """Names of containers that may grow: attributes of objects, module variables, caches."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if ast.unparse(decorator).partition("(")[0].rpartition(".")[2] in CACHES:
                    yield node.name
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if not may_grow(node.value):
                continue
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr
            if not isinstance(target, ast.Name) or node not in module.body:
                continue
            if not is_constant(target.id, node.value):
                yield target.id


def documented() -> dict[tuple[str, str], str]:
    rows = ROW.findall(text(ROOT / "docs" / "LIMITS.md"))
    return {(module, name): bound for module, name, bound in rows}


def test_every_container_of_a_client_is_in_the_documentation_with_its_bound() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in MODULES
        for name in containers(tree(path))
    }
    assert found
    assert_none(
        found ^ documented().keys(),
        "LIMITS.md#what-a-client-keeps: one row for each, and none for what is not there",
    )


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("class A:\n    def __init__(self):\n        self._a: deque[int] = deque()", ["_a"]),
        ("class A:\n    def __init__(self):\n        self._a = deque(maxlen=5)", []),
        ("class A:\n    def __init__(self):\n        self._a = weakref.WeakSet()", ["_a"]),
        ("class A:\n    def __init__(self):\n        self._a = {}", ["_a"]),
        ("class A:\n    def __init__(self):\n        self._a = SimpleQueue[int]()", ["_a"]),
        ("class A:\n    def __init__(self):\n        found = []", []),
        ("_known: dict[str, int] = {}", ["_known"]),
        ("NAMES = {'a': 1}", []),
        ("NAMES: list[str] = []", ["NAMES"]),
        ("@functools.cache\ndef parsed(): ...", ["parsed"]),
        ("@lru_cache(maxsize=None)\ndef parsed(): ...", ["parsed"]),
    ],
)
def test_the_rule_sees_what_may_grow(code: str, names: list[str]) -> None:
    assert list(containers(ast.parse(code))) == names
