"""A worker whose reader ended says nothing; every other error is printed as before."""

from __future__ import annotations

import sys
import traceback
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from ledgerlog_spark.datasource.worker import hide_broken_pipes


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("__main__")
    module.traceback = traceback
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
