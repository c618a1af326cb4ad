"""The rates of the worker and of the digest check, from the command line and from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from bookie_server.config import BookieSettings
from bookie_server.service import auto_recovery
from ledgerlog_spark.autorecovery import daemon
from ledgerlog_spark.cli.autorecovery.run import app
from ledgerlog_spark.metadata.stores import MetadataStores

MEBIBYTE = 1 << 20


class Noted:
    """Takes the place of a class, and notes its arguments."""

    def __init__(self) -> None:
        self.arguments: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> Noted:
        self.arguments = arguments
        return self

    async def run(self) -> None:
        """Do nothing."""

    def rates(self) -> tuple[int, int]:
        """The limits of the worker and of the digest check, in bytes in a second."""
        worker, audit = self.arguments[-2:]
        return worker.bytes_per_second_max, audit.digests.rate_bytes_per_second


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ([], (0, 16 * MEBIBYTE)),
        (["--rate", "2", "--check-rate", "0.5"], (2 * MEBIBYTE, MEBIBYTE // 2)),
    ],
)
def test_the_daemon_gets_its_rates(
    options: list[str], rates: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted()
    monkeypatch.setattr(daemon, "AutoRecoveryDaemon", noted)
    ended = CliRunner().invoke(app, options)
    assert ended.exit_code == 0, ended.output
    assert noted.rates() == rates


def test_a_bookie_gets_its_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    monkeypatch.setattr(auto_recovery, "AutoRecovery", noted)
    stores = cast("MetadataStores", None)
    settings = BookieSettings(
        directories=(Path("/a"),),
        autorecovery_bytes_per_s=70_000,
        autorecovery_check_bytes_per_s=80_000,
    )
    auto_recovery.BookieAutoRecovery("b1", settings, stores)
    assert noted.rates() == (70_000, 80_000)
    auto_recovery.BookieAutoRecovery("b1", BookieSettings(directories=(Path("/a"),)), stores)
    assert noted.rates() == (0, 16 * MEBIBYTE)
