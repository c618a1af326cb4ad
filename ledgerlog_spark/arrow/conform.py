"""Converts a RecordBatch to exactly the schema that the reader of the batch requires.

Spark 4.3 compares the schema of the first batch with the schema that it expects, including
nullability at every level. It fails on any difference. So this module matches columns by name, puts
them in order, and casts them if no value can change. Columns that an older batch lacks are filled
with nulls. If Spark ignores case, names that differ only in case are the same name. Otherwise, such
names are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ledgerlog_spark.arrow.spark_types import place_of
from ledgerlog_spark.errors import SchemaMismatchError

Convert = Callable[[pa.Array], pa.Array]


class Conformer:
    """Converts batches to the schema `target`.

    The conversion is planned once for each incoming schema. If `ignores_case` is False, a name that
    differs from the name of a column only in case is an error.
    """

    def __init__(self, target: pa.Schema, *, ignores_case: bool = False) -> None:
        self.target = target
        self._ignores_case = ignores_case
        self._source: pa.Schema | None = None
        self._steps: list[tuple[int, Convert] | None] | None = None

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same rows with the columns of `target`. The buffers are reused if possible."""
        if self._source is None or not batch.schema.equals(self._source):
            self._steps = self._decide(batch.schema)
            self._source = batch.schema
        if self._steps is None:
            return batch
        columns = [self._column(batch, place, step) for place, step in enumerate(self._steps)]
        if not columns:
            return batch.select([])
        return pa.RecordBatch.from_arrays(columns, schema=self.target)

    def _column(
        self, batch: pa.RecordBatch, place: int, step: tuple[int, Convert] | None
    ) -> pa.Array:
        field = self.target.field(place)
        if step is None:
            return pa.nulls(batch.num_rows, field.type)
        source, convert = step
        try:
            column = convert(batch.column(source))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            got = batch.schema.field(source)
            raise _mismatch(field.name, str(field.type), f"{got.type} ({error})") from error
        if not field.nullable and column.null_count:
            raise _mismatch(field.name, f"{field.type} not null", "a null")
        return column

    def _decide(self, schema: pa.Schema) -> list[tuple[int, Convert] | None] | None:
        """Return how to convert each target column, or None if the schemas are already equal."""
        if schema.equals(self.target):
            return None
        steps: list[tuple[int, Convert] | None] = []
        for field in self.target:
            count = len(schema.get_all_field_indices(field.name))
            if count > 1:
                raise _mismatch(field.name, "one column of that name", str(count))
            place = _source_of(field.name, schema.names, field.name, self._ignores_case)
            if place is not None:
                got = schema.field(place).type
                steps.append((place, conversion(got, field.type, field.name, self._ignores_case)))
            elif field.nullable:
                steps.append(None)
            else:
                raise _mismatch(field.name, f"{field.type} not null", "no such column")
        return steps


def _source_of(name: str, names: list[str], column: str, ignores_case: bool) -> int | None:
    place = place_of(name, names)
    if place is not None and names[place] != name and not ignores_case:
        raise SchemaMismatchError(
            f"column {column!r} is named {names[place]!r} in the rows, but this program "
            "distinguishes upper and lower case in names. Rename the column, or set "
            '"spark.sql.caseSensitive" to "false" in Spark.',
            column=column,
            expected=name,
            got=names[place],
        )
    return place


_LISTS = (types.is_list, types.is_large_list, types.is_fixed_size_list)
_FAMILIES = (
    (types.is_string, (types.is_string, types.is_large_string, types.is_string_view)),
    (types.is_binary, (
        types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary,
    )),
    (types.is_date32, (types.is_date,)),
    (types.is_time64, (types.is_time,)),
    (types.is_duration, (types.is_duration,)),
)  # fmt: skip
"""Pairs of a test for a wanted type, and the tests for the types that can be cast to this type."""


def conversion(
    got: pa.DataType, wanted: pa.DataType, column: str, ignores_case: bool = False
) -> Convert:
    """Return a function that converts arrays of type `got` to `wanted` and changes no value."""
    if got == wanted:
        return lambda array: array
    if types.is_dictionary(got):
        inner = conversion(got.value_type, wanted, column, ignores_case)
        return partial(_decoded, then=inner)
    if types.is_struct(got) and types.is_struct(wanted):
        return _struct_conversion(got, wanted, column, ignores_case)
    if types.is_list(wanted) and any(is_kind(got) for is_kind in _LISTS):
        element = _checked(
            conversion(got.value_type, wanted.value_type, f"{column}.element", ignores_case),
            wanted.value_field,
            f"{column}.element",
        )
        return partial(list_array, wanted=wanted, convert=element)
    if types.is_map(got) and types.is_map(wanted):
        key = conversion(got.key_type, wanted.key_type, f"{column}.key", ignores_case)
        value = _checked(
            conversion(got.item_type, wanted.item_type, f"{column}.value", ignores_case),
            wanted.item_field,
            f"{column}.value",
        )
        return partial(map_array, wanted=wanted, key=key, value=value)
    if not _casts_safely(got, wanted):
        raise _mismatch(column, str(wanted), str(got))
    return partial(_cast, wanted=wanted)


def _casts_safely(got: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast keeps the meaning of values. The cast fails if it would change a value."""
    if types.is_null(got):
        return True
    if types.is_integer(got):
        return bool(types.is_integer(wanted) or types.is_float64(wanted))
    if types.is_floating(got):
        return bool(types.is_floating(wanted)) and wanted.bit_width >= got.bit_width
    if types.is_decimal(got):
        return bool(types.is_decimal128(wanted)) and wanted.scale >= got.scale
    if types.is_timestamp(got):
        return bool(types.is_timestamp(wanted)) and (got.tz is None) == (wanted.tz is None)
    return any(
        is_wanted(wanted) and any(is_kind(got) for is_kind in kinds)
        for is_wanted, kinds in _FAMILIES
    )


def _cast(array: pa.Array, *, wanted: pa.DataType) -> pa.Array:
    return array.cast(wanted, safe=True)


def _decoded(array: pa.DictionaryArray, *, then: Convert) -> pa.Array:
    return then(array.dictionary_decode())


def _checked(convert: Convert, field: pa.Field, column: str) -> Convert:
    """Return `convert`, with a check for nulls if `field` is not nullable.

    The check raises an error for a null.
    """
    return convert if field.nullable else partial(_without_nulls, convert, column=column)


def _without_nulls(convert: Convert, array: pa.Array, *, column: str) -> pa.Array:
    converted = convert(array)
    if converted.null_count:
        raise _mismatch(column, f"{converted.type} not null", "a null")
    return converted


def _struct_conversion(
    got: pa.DataType, wanted: pa.DataType, column: str, ignores_case: bool
) -> Convert:
    children: list[tuple[int, Convert] | None] = []
    names = [field.name for field in got]
    for field in wanted:
        path = f"{column}.{field.name}"
        place = _source_of(field.name, names, path, ignores_case)
        if place is None:
            if not field.nullable:
                raise _mismatch(path, f"{field.type} not null", "no such field")
            children.append(None)
        else:
            inner = conversion(got.field(place).type, field.type, path, ignores_case)
            children.append((place, inner))
    return partial(struct_array, wanted=wanted, children=children)


def struct_array(
    array: pa.StructArray, *, wanted: pa.DataType, children: Sequence[tuple[int, Convert] | None]
) -> pa.StructArray:
    """Return the structs with the fields of `wanted`.

    A field is a converted child, or all nulls.
    """
    # `field` returns a child without the nulls of the structs, so `mask` contains these nulls.
    arrays = [
        pa.nulls(len(array), wanted.field(at).type)
        if child is None
        else child[1](array.field(child[0]))
        for at, child in enumerate(children)
    ]
    # If the struct type has no fields, only the mask shows the number of structs.
    mask = array.is_null() if array.null_count or not arrays else None
    for field, child in zip(wanted, arrays, strict=True):
        # In a null struct, a field has no value, even if the field is not nullable.
        if not field.nullable and child.null_count:
            below = child if mask is None else child.filter(array.is_valid())
            if below.null_count:
                raise _mismatch(field.name, f"{field.type} not null", "a null")
    return pa.StructArray.from_arrays(arrays, fields=list(wanted), mask=mask)


def list_array(array: pa.Array, *, wanted: pa.DataType, convert: Convert) -> pa.ListArray:
    """Return the lists with converted elements."""
    if not types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    # `flatten` drops values that are in null lists, so `_offsets` counts null lists as empty.
    lengths = array.value_lengths()
    mask = array.is_null() if array.null_count else None
    offsets = _offsets(lengths)
    return pa.ListArray.from_arrays(offsets, convert(array.flatten()), type=wanted, mask=mask)


def map_array(
    array: pa.MapArray, *, wanted: pa.DataType, key: Convert, value: Convert
) -> pa.MapArray:
    """Return the maps with converted keys and values."""
    # The map cannot be built as a list of structs: Arrow cannot build null structs with fields
    # that are not nullable.
    ends = array.offsets
    lengths = pc.subtract(ends.slice(1), ends.slice(0, len(array)))
    mask = array.is_null() if array.null_count else None
    if mask is not None:
        lengths = pc.if_else(mask, 0, lengths)
        array = array.filter(array.is_valid())
        ends = array.offsets
    first = ends[0].as_py() if len(array) else 0
    entries = ends[-1].as_py() - first if len(array) else 0
    offsets = _offsets(lengths)
    keys = key(array.keys.slice(first, entries))
    values = value(array.items.slice(first, entries))
    return pa.MapArray.from_arrays(offsets, keys, values, type=wanted, mask=mask)


def _offsets(lengths: pa.Array) -> pa.Array:
    ends = pc.cumulative_sum(pc.fill_null(lengths, 0)).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _mismatch(column: str, expected: str, got: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {column!r} must be {expected}, but is {got}.",
        column=column,
        expected=expected,
        got=got,
    )
