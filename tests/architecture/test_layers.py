"""Imports run only downwards, even those only for types (ARCHITECTURE.md#layers)."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.house.imports import circles, graph_of
from tests.architecture.trees import (
    PACKAGES,
    PYTHON,
    ROOT,
    assert_none,
    modules,
    name,
    nodes,
    tree,
)

CLIENT_LAYERS = {
    "errors": set(),
    "waits": set(),
    "callbacks": set(),
    "lines": set(),
    "retry": set(),
    "model": {"errors"},
    "wire": {"errors", "model"},
    "protocol": {"errors", "retry", "model"},
    "metadata": {"errors", "waits", "model", "wire", "protocol"},
    "transport": {"errors", "retry", "waits", "model", "wire"},
    "client": {
        "errors", "waits", "callbacks", "retry", "model", "wire", "protocol", "metadata",
        "transport",
    },
    "log": {
        "errors", "waits", "callbacks", "retry", "model", "wire", "protocol", "metadata", "client",
        "arrow",
    },
    "arrow": {"errors", "model", "wire", "protocol"},
    "local": {"errors", "model"},
    "composition": {
        "errors", "model", "wire", "protocol", "metadata", "transport", "client", "log",
    },
    "tools": {
        "errors", "waits", "model", "wire", "protocol", "metadata", "transport", "client", "log",
        "composition",
    },
    "aio": {"client", "composition", "log"},
    "testing": {"errors", "waits", "model", "wire", "metadata", "transport", "client", "log"},
    "upkeep": {
        "errors", "waits", "lines", "retry", "model", "protocol", "metadata", "client", "log",
        "arrow", "composition",
    },
    "autorecovery": {
        "errors", "waits", "callbacks", "lines", "retry", "model", "wire", "protocol", "metadata",
        "transport", "client", "composition",
    },
    "datasource": {
        "errors", "retry", "model", "wire", "protocol", "metadata", "client", "log", "arrow",
        "composition", "upkeep",
    },
}  # fmt: skip
CLIENT_TOP = {"cli", "__init__"}  # may import every layer

BOOKIE_LAYERS = {
    "errors": set(),
    "descriptors": set(),
    "config": {"errors", "core"},
    "ports": {"errors"},
    "core": {"errors", "ports"},
    "storage": {"errors", "ports", "core", "config"},
    "tools": {"errors", "ports", "core", "storage"},
    "service": {"errors", "ports", "core", "storage", "config", "descriptors"},
}
BOOKIE_TOP = {"__main__", "__init__"}
FROM_CLIENT_PACKAGE = {
    "errors": {"errors"},
    "descriptors": {"errors"},
    "config": {"errors", "model"},
    "ports": {"errors", "model"},
    "core": {"errors", "model", "wire"},
    "storage": {"errors", "model", "wire"},
    "tools": {"errors", "model", "wire", "metadata"},
    "service": {
        "errors",
        "lines",
        "retry",
        "model",
        "wire",
        "metadata",
        "transport",
        "composition",
        "autorecovery",
    },
}

STAIRS = (
    ("protocol.ledger", "protocol.log", "protocol.leader"),
    ("protocol.ledger.write", "protocol.ledger.recover", "protocol.ledger.read"),
    ("protocol.log.state", "protocol.log.read", "protocol.log.commit"),
    ("transport.grpc", "transport.v2"),
    ("metadata.ledgers", "metadata.logs"),
    ("log.reading", "log.leader"),
    ("datasource.options", "datasource.scan", "datasource.stream"),
    ("datasource.options", "datasource.write", "datasource.stream"),
    ("storage.files", "storage.reading"),
    ("service.limits", "service.v2"),
    ("service.limits", "service.grpc"),
    ("service.repair", "service.grpc"),
)
"""Folders of one layer. A folder does not import the folders after it in its row."""
FOLDER_MODULES_MAX = 20

IMPURE = {
    "asyncio", "concurrent", "datetime", "logging", "mmap", "multiprocessing", "os", "pathlib",
    "queue", "random", "secrets", "selectors", "shutil", "signal", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "uuid",
}  # fmt: skip
PURE = ("ledgerlog_spark/protocol", "ledgerlog_spark/wire", "bookie_server/core")
PURE_MODULES = ("ledgerlog_spark/retry.py",)
BEHIND_PORTS = "bookie_server/storage"
ADAPTERS_OF_PORTS = {
    "bookie_server/storage/device/directories.py",
    "bookie_server/storage/device/filesystem.py",
    "bookie_server/storage/device/mapped_number.py",
    "bookie_server/storage/device/transfers.py",
    "bookie_server/storage/device/runtime.py",
}
CHECKSUM_LIBRARIES = {"crc32c"}
ONLY_HERE = {
    "grpc": ("ledgerlog_spark/transport/", "bookie_server/service/", "ledgerlog_spark/cli/"),
    "kazoo": ("ledgerlog_spark/metadata/",),
    "pyspark": (
        "ledgerlog_spark/datasource/", "ledgerlog_spark/local/", "ledgerlog_spark/cli/",
        "pyspark_ledger.py", "ledgerlog_spark/__init__.py",
    ),
    "pyarrow": (
        "ledgerlog_spark/arrow/", "ledgerlog_spark/datasource/", "ledgerlog_spark/upkeep/",
        "ledgerlog_spark/cli/",
    ),
}  # fmt: skip


COMPARED = (
    "rounds.py", "append.py", "read.py", "recovery.py", "spark_read.py", "spark_write.py",
    "spark_session.py", "spark_baselines.py", "machine.py", "options.py", "report.py",
    "peer_bookkeeper.py",
)  # fmt: skip
PUBLIC = {"ledgerlog_spark.local.zookeeper"}

ALIAS = ROOT / "pyspark_ledger.py"
GRAPH = graph_of(ROOT, [name(path) for path in PYTHON])
"""Imports of modules, including those only for types."""
RELATIVE = "a relative import"


@cache
def for_types(path: Path) -> set[int]:
    """The ids of the nodes below `if TYPE_CHECKING`."""
    return {
        id(node)
        for block in nodes(path)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }


@cache
def imported(path: Path, *, typing_too: bool = False) -> set[str]:
    """Dotted names of all modules that a file imports, lazily or not; at run time by default."""
    names: set[str] = set()
    left_out = set() if typing_too else for_types(path)
    for node in nodes(path):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(RELATIVE if node.level else node.module or "")
            if node.module in ("ledgerlog_spark", "bookie_server"):
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def layer(path: Path, package: str) -> str:
    return path.relative_to(ROOT / package).parts[0].removesuffix(".py")


def layers_imported(path: Path, package: str) -> set[str]:
    """The layers of a package that a file imports, including those only for types."""
    names = imported(path, typing_too=True)
    return {each.split(".")[1] for each in names if each.startswith(package + ".")}


def upwards_of_the_client(path: Path) -> Iterator[str]:
    own = layer(path, "ledgerlog_spark")
    if own in CLIENT_TOP:
        return
    if own not in CLIENT_LAYERS:
        yield f"{own} is not a layer: add it to the table and to the docs"
        return
    yield from layers_imported(path, "ledgerlog_spark") - CLIENT_LAYERS[own] - {own}
    if any(n.split(".")[0] == "bookie_server" for n in imported(path, typing_too=True)):
        yield "bookie_server"


def upwards_of_the_bookie(path: Path) -> Iterator[str]:
    own = layer(path, "bookie_server")
    if own in BOOKIE_TOP:
        return
    if own not in BOOKIE_LAYERS:
        yield f"{own} is not a layer: add it to the table and to the docs"
        return
    yield from layers_imported(path, "bookie_server") - BOOKIE_LAYERS[own] - {own}
    for foreign in layers_imported(path, "ledgerlog_spark") - FROM_CLIENT_PACKAGE[own]:
        yield f"ledgerlog_spark.{foreign}"


def not_pure(path: Path) -> Iterator[str]:
    for module in imported(path):
        top = module.split(".")[0]
        in_wire = "wire" in path.parts and top in CHECKSUM_LIBRARIES
        is_ours = top in ("ledgerlog_spark", "bookie_server")
        if top in IMPURE or not (is_ours or in_wire or top in sys.stdlib_module_names):
            yield module


def test_client_package_imports_downwards() -> None:
    assert_none(
        (
            f"{name(path)}: {upwards}"
            for path in modules("ledgerlog_spark")
            for upwards in upwards_of_the_client(path)
        ),
        "a layer imports what stands below it (ARCHITECTURE.md#layers)",
    )


def test_bookie_package_imports_downwards() -> None:
    assert_none(
        (
            f"{name(path)}: {upwards}"
            for path in modules("bookie_server")
            for upwards in upwards_of_the_bookie(path)
        ),
        "a layer imports what stands below it (ARCHITECTURE.md#layers)",
    )


def upwards_on_stairs() -> Iterator[str]:
    for stairs in STAIRS:
        for at, low in enumerate(stairs):
            above = tuple(f"{package}.{high}." for package in PACKAGES for high in stairs[at + 1 :])
            found = [(m, i) for m, found in GRAPH.items() if f".{low}." in m for i in found]
            assert found, f"{low} has no module that imports anything"
            yield from (f"{module}: {other}" for module, other in found if other.startswith(above))


def test_folders_of_a_layer_import_downwards() -> None:
    assert_none(upwards_on_stairs(), "STAIRS has the order of the folders")


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Not even for types: a reader would have to understand all of them to understand one."""
    assert_none(circles(GRAPH), "move what both need into a module below them")


def test_no_folder_is_longer_than_a_page() -> None:
    counts = Counter(path.parent for path in PYTHON if path.name != "__init__.py")
    assert_none(
        (f"{name(folder)}: {n} modules" for folder, n in counts.items() if n > FOLDER_MODULES_MAX),
        "a folder has a folder wherever its modules share a prefix",
    )


def test_no_import_is_relative() -> None:
    everywhere = [*modules("ledgerlog_spark"), *modules("bookie_server"), ALIAS]
    assert_none(
        (name(path) for path in everywhere if RELATIVE in imported(path)),
        "import by the whole name: the other rules read it",
    )


def test_pure_layers_use_the_standard_library_and_no_io() -> None:
    assert_none(
        (
            f"{name(path)}: {module}"
            for path in [
                *(path for folder in PURE for path in modules(folder)),
                *(ROOT / module for module in PURE_MODULES),
            ]
            for module in not_pure(path)
        ),
        "a pure layer imports ours and the standard library without its I/O",
    )


def test_storage_reaches_the_world_through_ports_only() -> None:
    assert_none(
        (path for path in ADAPTERS_OF_PORTS if not (ROOT / path).exists()), "they do not exist"
    )
    assert_none(
        (
            f"{name(path)}: {module}"
            for path in modules(BEHIND_PORTS)
            if name(path) not in ADAPTERS_OF_PORTS
            for module in imported(path)
            if module.split(".")[0] in IMPURE
        ),
        "use the ports",
    )


def test_libraries_stay_in_their_adapters() -> None:
    assert_none(
        (
            f"{name(path)}: {module}"
            for path in [*modules("ledgerlog_spark"), *modules("bookie_server"), ALIAS]
            for module in imported(path)
            if (library := module.split(".")[0]) in ONLY_HERE
            and not name(path).startswith(ONLY_HERE[library])
        ),
        "its adapters are in ONLY_HERE",
    )


def test_benchmarks_that_compare_checkouts_import_the_public_package() -> None:
    """They run with the packages of both checkouts, in which modules may have other names."""
    assert_none(
        (
            f"{file}: {node.module}"
            for file in COMPARED
            for node in tree(ROOT / "benchmarks" / file).body
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("ledgerlog_spark.")
            and node.module not in PUBLIC
        ),
        "import it below `if TYPE_CHECKING`, or use what ledgerlog_spark has",
    )
