"""A worker whose reader has ended prints nothing. Every other error is printed as before."""

from __future__ import annotations

import subprocess
import sys
import traceback
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from ledgerlog_spark.datasource.worker import hide_broken_pipes


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("__main__")
    vars(module)["traceback"] = traceback
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def printed(main: ModuleType, error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        raise error
    except type(error):
        main.traceback.print_exc()
    return capsys.readouterr().err


def test_broken_pipe_is_hidden_in_the_daemons_workers_only(
    main: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    main.__spec__ = ModuleSpec("pyspark.daemon", None)
    hide_broken_pipes()
    hide_broken_pipes()
    assert printed(main, BrokenPipeError(), capsys) == ""
    assert "ValueError: seen" in printed(main, ValueError("seen"), capsys)
    assert main.traceback.format_exc is traceback.format_exc


@pytest.mark.parametrize("spec", [None, ModuleSpec("my_program", None)])
def test_other_programs_keep_their_module(main: ModuleType, spec: ModuleSpec | None) -> None:
    main.__spec__ = spec
    hide_broken_pipes()
    assert main.traceback is traceback


UNPICKLED_IN_WORKERS = ("source", "scan.reader", "write.writer", "stream.reader",
                        "stream.writer")  # fmt: skip
DAEMONS_WORKER = """
import importlib, sys, traceback
from importlib.machinery import ModuleSpec
__spec__ = ModuleSpec("pyspark.daemon", None)
importlib.import_module(sys.argv[1])
try:
    raise BrokenPipeError
except BrokenPipeError:
    traceback.print_exc()
"""


@pytest.mark.parametrize("module", UNPICKLED_IN_WORKERS)
def test_broken_pipe_is_hidden_in_a_worker_of_each_kind(module: str) -> None:
    """A worker for writers never imports the source. Spark ends it a minute after a write."""
    said = subprocess.run(
        [sys.executable, "-c", DAEMONS_WORKER, f"ledgerlog_spark.datasource.{module}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stderr == ""
