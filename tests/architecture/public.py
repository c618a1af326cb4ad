"""The public API: names of the package and of its `testing`, and the classes of their calls."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import ledgerlog_spark as ll
from ledgerlog_spark import testing

PACKAGE = "ledgerlog_spark"
HANDLES = [
    ("ledgerlog_spark.log.clients", "BlockingLogClient"),
    ("ledgerlog_spark.log.clients", "LogClient"),
]
"""The results of the two connect functions. All other classes follow from annotations."""


@cache
def imported(module: str) -> dict[str, tuple[str, str]]:
    """Names that a module imports from the package anywhere, even only for annotations."""
    file = importlib.import_module(module).__file__
    assert file is not None
    found = {}
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            for each in node.names:
                found[each.asname or each.name] = (node.module or "", each.name)
    return found


def named(annotation: Any, module: str) -> Iterator[type]:
    """The package's classes that an annotation names."""
    for name in re.findall(r"\w+", annotation if isinstance(annotation, str) else str(annotation)):
        home, original = imported(module).get(name, (module, name))
        found = getattr(importlib.import_module(home), original, None)
        if inspect.isclass(found) and found.__module__.startswith(PACKAGE):
            yield found


def functions_of(kind: type) -> Iterator[tuple[str, Any, FunctionType, str]]:
    """Public calls and properties of a class: name, object, function, module of its class."""
    for each in inspect.classify_class_attrs(kind):
        if each.name.startswith("_") or not each.defining_class.__module__.startswith(PACKAGE):
            continue
        function = each.object.fget if isinstance(each.object, property) else each.object
        function = getattr(function, "__func__", function)
        if isinstance(function, FunctionType):
            yield each.name, each.object, function, each.defining_class.__module__


def classes_near(function: FunctionType, home: str) -> Iterator[type]:
    """Classes of the parameters and the result of a call; `home` is the module of its class."""
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        yield from named(parameter.annotation, function.__module__)
    for module in {home, function.__module__}:
        yield from named(signature.return_annotation, module)


def is_ours(each: Any) -> bool:
    """Whether it is a public class of the package."""
    return (
        inspect.isclass(each)
        and each.__module__.startswith(PACKAGE)
        and not each.__name__.startswith("_")
    )


@cache
def reachable() -> dict[str, Any]:
    """Public functions and classes by their names, including those of `aio`."""
    found: dict[str, Any] = {"aio.connect": ll.aio.connect}
    left = [getattr(ll, name) for name in ll.__all__]
    left += [getattr(testing, name) for name in testing.__all__]
    left += [error for error in vars(ll.errors).values() if inspect.isclass(error)]
    left += [getattr(importlib.import_module(home), name) for home, name in HANDLES]
    while left:
        each = left.pop()
        if isinstance(each, FunctionType):
            found[each.__name__] = each
            left += classes_near(each, each.__module__)
        elif is_ours(each) and each.__name__ not in found:
            found[each.__name__] = each
            for _, _, function, home in functions_of(each):
                left += classes_near(function, home)
    return found


def calls() -> Iterator[tuple[str, Any, FunctionType]]:
    """Every public function and call: its place, the object, and its function."""
    for name, each in reachable().items():
        if isinstance(each, FunctionType):
            yield name, each, each
        else:
            for member, of, function, _ in functions_of(each):
                yield f"{name}.{member}", of, function
