"""A write with an unusable "passwordFile" creates no log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.cluster import client_of
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.stream import job as stream_job
from ledgerlog_spark.datasource.stream.writer import StreamWriter
from ledgerlog_spark.datasource.write.job import begin_job
from ledgerlog_spark.errors import ConfigurationError, LogNotFoundError
from tests.fixtures.blocking_world import URI, BlockingWorld, blocking_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ledgerlog_spark.datasource.options.values import SourceOptions

__all__ = ["blocking_world"]

ROWS = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'


def batch(options: SourceOptions) -> Any:
    return begin_job(client_of(URI), options, ROWS, overwrite=False)


def stream(options: SourceOptions) -> Any:
    return StreamWriter(URI, options, ROWS, overwrite=False)


@pytest.mark.parametrize("write", [batch, stream])
@pytest.mark.parametrize("content", [b"", b"x" * 10_000_000])
def test_a_write_with_a_bad_password_file_makes_no_log(
    blocking_world: BlockingWorld,
    tmp_path: Path,
    write: Callable[[SourceOptions], Any],
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_job, "_log_ids", {})
    file = tmp_path / "password"
    file.write_bytes(content)
    options = SourceOptions.parse({"log": "made", "passwordFile": str(file)}).for_write()
    with pytest.raises(ConfigurationError, match='"passwordFile"'):
        write(options)
    with pytest.raises(LogNotFoundError):
        blocking_world.logs.open("made")
    file.write_bytes(b"secret")
    write(options)
    blocking_world.logs.open("made")
