"""Imports run downwards only (ARCHITECTURE.md#layers)."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CLIENT_LAYERS = {
    "errors": set(),
    "waits": set(),
    "callbacks": set(),
    "lines": set(),
    "model": {"errors"},
    "wire": {"errors", "model"},
    "protocol": {"errors", "model"},
    "metadata": {"errors", "waits", "model", "wire", "protocol"},
    "transport": {"errors", "waits", "model", "wire"},
    "client": {
        "errors", "waits", "callbacks", "model", "wire", "protocol", "metadata", "transport",
    },
    "log": {
        "errors", "waits", "callbacks", "model", "wire", "protocol", "metadata", "client", "arrow",
    },
    "arrow": {"errors", "model", "wire", "protocol"},
    "local": {"errors", "model"},
    "connect": {
        "errors", "model", "wire", "protocol", "metadata", "transport", "client", "log",
    },
    "aio": {"client", "connect", "log"},
    "upkeep": {
        "errors", "waits", "lines", "model", "protocol", "metadata", "client", "log", "arrow",
        "connect",
    },
    "datasource": {
        "errors", "model", "wire", "protocol", "metadata", "client", "log", "arrow", "connect",
        "upkeep",
    },
}  # fmt: skip
CLIENT_TOP = {"cli", "__init__"}  # may import every layer

BOOKIE_LAYERS = {
    "errors": set(),
    "descriptors": set(),
    "config": {"errors"},
    "ports": {"errors"},
    "core": {"errors", "ports"},
    "storage": {"errors", "ports", "core", "config"},
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
    "service": {"errors", "lines", "model", "wire", "metadata", "transport", "connect"},
}

IMPURE = {
    "asyncio", "concurrent", "datetime", "logging", "mmap", "multiprocessing", "os", "pathlib",
    "queue", "random", "secrets", "selectors", "shutil", "signal", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "uuid",
}  # fmt: skip
PURE = ("ledgerlog_spark/protocol", "ledgerlog_spark/wire", "bookie_server/core")
BEHIND_PORTS = "bookie_server/storage"
ADAPTERS_OF_PORTS = {
    "bookie_server/storage/os_filesystem.py",
    "bookie_server/storage/os_runtime.py",
    "bookie_server/storage/os_thread.py",
}
CHECKSUM_LIBRARIES = {"crc32c"}
ONLY_HERE = {
    "grpc": ("ledgerlog_spark/transport", "bookie_server/service", "ledgerlog_spark/cli"),
    "kazoo": ("ledgerlog_spark/metadata",),
    "pyspark": (
        "ledgerlog_spark/datasource", "ledgerlog_spark/local", "ledgerlog_spark/cli",
        "pyspark_ledger.py", "ledgerlog_spark/__init__.py",
    ),
    "pyarrow": (
        "ledgerlog_spark/arrow", "ledgerlog_spark/datasource", "ledgerlog_spark/upkeep",
        "ledgerlog_spark/cli",
    ),
}  # fmt: skip


def sources(folder: str) -> list[Path]:
    found = [p for p in sorted((ROOT / folder).rglob("*.py")) if "_pb2" not in p.name]
    assert found, f"{folder} has no module: a rule about it would hold for nothing"
    return found


def imported(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports at run time, lazily or not."""
    names: set[str] = set()
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            if node.module in ("ledgerlog_spark", "bookie_server"):
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def layer(path: Path, package: str) -> str:
    return path.relative_to(ROOT / package).parts[0].removesuffix(".py")


def layers_imported(path: Path, package: str) -> set[str]:
    return {n.split(".")[1] for n in imported(path) if n.startswith(package + ".")}


@pytest.mark.parametrize("path", sources("ledgerlog_spark"), ids=lambda p: str(p.relative_to(ROOT)))
def test_client_package_imports_downwards(path: Path) -> None:
    own = layer(path, "ledgerlog_spark")
    if own in CLIENT_TOP:
        return
    assert own in CLIENT_LAYERS, f"{own} is not a layer: add it to the table and to the docs"
    upwards = layers_imported(path, "ledgerlog_spark") - CLIENT_LAYERS[own] - {own}
    assert not upwards, f"{path.name} in {own} imports {sorted(upwards)}"
    assert not any(n.split(".")[0] == "bookie_server" for n in imported(path))


@pytest.mark.parametrize("path", sources("bookie_server"), ids=lambda p: str(p.relative_to(ROOT)))
def test_bookie_package_imports_downwards(path: Path) -> None:
    own = layer(path, "bookie_server")
    if own in BOOKIE_TOP:
        return
    assert own in BOOKIE_LAYERS, f"{own} is not a layer: add it to the table and to the docs"
    upwards = layers_imported(path, "bookie_server") - BOOKIE_LAYERS[own] - {own}
    assert not upwards, f"{path.name} in {own} imports {sorted(upwards)}"
    foreign = layers_imported(path, "ledgerlog_spark") - FROM_CLIENT_PACKAGE[own]
    assert not foreign, f"{path.name} in {own} imports ledgerlog_spark {sorted(foreign)}"


@pytest.mark.parametrize("folder", PURE)
def test_pure_layers_use_the_standard_library_and_no_io(folder: str) -> None:
    for path in sources(folder):
        for name in imported(path):
            top = name.split(".")[0]
            assert top not in IMPURE, f"{path}: {name}"
            allowed = top in sys.stdlib_module_names or top in ("ledgerlog_spark", "bookie_server")
            in_wire = "wire" in path.parts and top in CHECKSUM_LIBRARIES
            assert allowed or in_wire, f"{path}: {name} is not in the standard library"


def test_storage_reaches_the_world_through_ports_only() -> None:
    assert {path for path in ADAPTERS_OF_PORTS if not (ROOT / path).exists()} == set()
    for path in sources(BEHIND_PORTS):
        if str(path.relative_to(ROOT)) in ADAPTERS_OF_PORTS:
            continue
        impure = {n for n in imported(path) if n.split(".")[0] in IMPURE}
        assert not impure, f"{path}: {sorted(impure)}"


@pytest.mark.parametrize("library", ONLY_HERE)
def test_libraries_stay_in_their_adapters(library: str) -> None:
    for path in [
        *sources("ledgerlog_spark"),
        *sources("bookie_server"),
        ROOT / "pyspark_ledger.py",
    ]:
        if not path.exists() or str(path.relative_to(ROOT)).startswith(ONLY_HERE[library]):
            continue
        assert not any(n.split(".")[0] == library for n in imported(path)), f"{path}: {library}"
