"""Decides where the columns of a scan are in stored rows, and whether the JVM engine reads them.

The JVM engine returns stored columns as they are, and fills missing columns with nulls. It converts
no values. So the Python source has to run a scan that needs a conversion.
"""

from __future__ import annotations

import pyarrow as pa

from ledgerlog_spark.arrow.spark_types import arrow_type_of, place_of
from ledgerlog_spark.datasource.schemas import METADATA_COLUMNS

Origin = int | str | None
"""Origin of a column: its place in stored rows, a metadata column's name, or None for only nulls.
"""


class ConversionNeededError(Exception):
    """Raised if only the Python source can run the scan.

    The text names the reason, such as a column.
    """


def origins_of(
    target: pa.Schema, stored: pa.Schema, *, include_metadata: bool, ignores_case: bool
) -> list[Origin]:
    """Return the origin of each column of `target` in rows of the schema `stored`.

    Raises:
        ConversionNeededError: The Python source has to convert a column, or to raise an error.
    """
    return [
        _origin_of(field, stored, include_metadata=include_metadata, ignores_case=ignores_case)
        for field in target
    ]


def _origin_of(
    field: pa.Field, stored: pa.Schema, *, include_metadata: bool, ignores_case: bool
) -> Origin:
    if not field.nullable:
        raise ConversionNeededError(f"column {field.name!r} is not nullable")
    metadata_names = list(METADATA_COLUMNS) if include_metadata else []
    for names in (metadata_names, stored.names):
        place = place_of(field.name, names)
        if place is None:
            continue
        if names[place] != field.name and not ignores_case:
            raise ConversionNeededError(f"column {field.name!r} has a name in another case")
        is_metadata = names is metadata_names
        kind = (
            arrow_type_of(METADATA_COLUMNS[names[place]], field.name)
            if is_metadata
            else stored.field(place).type
        )
        if kind != field.type:
            raise ConversionNeededError(f"column {field.name!r} is stored as {kind}")
        return names[place] if is_metadata else place
    return None
