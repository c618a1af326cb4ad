"""Only errors that are certainly Spark's own cause another attempt."""

from __future__ import annotations

import pytest

from tests.exactly_once.spark_errors import is_sparks_own

CONNECT_BACK = (
    "org.apache.spark.SparkException: Python worker failed to connect back.\n"
    "\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker"
)


@pytest.mark.parametrize(
    ("text", "is_theirs"),
    [
        (CONNECT_BACK, True),
        ("Java gateway process exited before sending its port number.", True),
        (f'{CONNECT_BACK}\n  File "/x/ledgerlog_spark/datasource/source.py", line 3', False),
        ("ledgerlog_spark.errors.DataLossError: rows 3 to 5 of log input", False),
        ("Python worker exited unexpectedly (crashed)", False),
        ("", False),
    ],
)
def test_errors_are_told_apart(text: str, *, is_theirs: bool) -> None:
    assert is_sparks_own(text) == is_theirs
