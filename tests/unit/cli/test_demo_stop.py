"""The end of the demonstration's Spark is complete, even after Ctrl-C during the end."""

from __future__ import annotations

import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from ledgerlog_spark.cli.demo import _stop
from ledgerlog_spark.cli.stop_signals import StopSignals


class FakeSession:
    """A session whose JVM is `cat`, which ends with its standard input."""

    def __init__(self, *, fails: bool = False) -> None:
        self.java = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        self.sparkContext: Any = SimpleNamespace(_gateway=SimpleNamespace(proc=self.java))
        self.is_stopped = False
        self._fails = fails

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert self.java.poll() is None
        if self._fails:
            raise ConnectionRefusedError
        self.is_stopped = True


@pytest.mark.parametrize("fails", [False, True])
def test_interrupt_while_spark_stops_counts_when_its_jvm_has_ended(fails: bool) -> None:
    session: Any = FakeSession(fails=fails)
    with StopSignals(), pytest.raises(KeyboardInterrupt):
        _stop(session)
    assert session.is_stopped is not fails
    assert session.java.returncode == 0
