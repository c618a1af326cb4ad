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
DAEMON = """
import contextlib, importlib, io, os, sys, traceback
from importlib.machinery import ModuleSpec
import crc32c, google.protobuf, grpc, kazoo.client, lz4.frame, pandas, pyarrow.compute
import pydantic_settings
import pyspark.sql.datasource, pyspark.sql.types, pyspark.sql.streaming
assert not [name for name in sys.modules if name.startswith("ledgerlog")]
__spec__ = ModuleSpec("pyspark.daemon", None)
for module in sys.argv[1:]:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, module
        continue
    importlib.import_module(f"ledgerlog_spark.datasource.{module}")
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            traceback.print_exc()
    print(module, repr(said.getvalue()), flush=True)
    os._exit(0)
"""


def test_broken_pipe_is_hidden_in_a_worker_of_each_kind() -> None:
    """A worker for writers never imports the source. Spark ends it a minute after a write.

    As Spark's daemon does, a process forks the workers. It has the packages of others already.
    """
    ended = subprocess.run(
        [sys.executable, "-c", DAEMON, *UNPICKLED_IN_WORKERS],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert ended.stdout.splitlines() == [f"{module} ''" for module in UNPICKLED_IN_WORKERS]
