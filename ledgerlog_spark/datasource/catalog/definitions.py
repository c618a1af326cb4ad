"""The table definitions that a log can represent, and the options of a write that creates a log.

Spark passes the clauses of CREATE TABLE as columns, partitions and properties. If a log cannot
represent a clause, the statement fails. If such a clause were ignored, the new table would differ
from the statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ledgerlog_spark.arrow.schema_evolution import merge
from ledgerlog_spark.arrow.spark_types import place_of, struct_of, type_text
from ledgerlog_spark.datasource.options.table import SPARKS_OWN, TABLE_OPTION_PREFIX
from ledgerlog_spark.datasource.options.values import BY_LOWER_NAME
from ledgerlog_spark.errors import ConfigurationError, SchemaMismatchError
from ledgerlog_spark.protocol.log.properties import new_properties

FORMAT_NAME = "ledger"
COMMENT = "comment"

_REFUSED = {
    "location": "the bookies store the rows of a log, so a table has no LOCATION: leave it out",
    "external": "a table of this catalog is a log, so no table is EXTERNAL: leave it out",
    "collation": "a log has no DEFAULT COLLATION: set the collation of each column",
    "log": "the name of a table is the name of its log: leave the option log out",
    "path": "the name of a table is the name of its log: leave the option path out",
}
"""Maps each property of Spark that a log cannot have to the advice for the user."""

_IGNORED = frozenset({COMMENT, "provider", "owner", "is_managed_location"}) | SPARKS_OWN
"""Properties of Spark that are not stored in the log.

Spark itself sets most of these properties.
"""


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a table that a log can represent.

    Attributes:
        schema_json: The columns, as Spark's JSON.
        comment: The comment of the table; empty if there is no comment.
        properties: Maps the names of the log's properties to the values that differ from defaults.
    """

    schema_json: str
    comment: str
    properties: Mapping[str, str]

    def options(self) -> dict[str, str]:
        """Return the options of a write that creates a log with this comment and these properties.

        Raises ConfigurationError if no option of a write can set one of the properties.
        """
        for name in self.properties:
            if name.lower() not in BY_LOWER_NAME:
                raise ConfigurationError(
                    f"CREATE TABLE .. AS SELECT cannot set the property {name}: leave it out, and "
                    f"set it later with ALTER TABLE .. SET TBLPROPERTIES ('{name}' = ..)",
                    key=name,
                )
        comment = {"logComment": self.comment} if self.comment else {}
        return {**self.properties, **comment}


def definition_of(
    schema_json: str, partitions: Sequence[str], properties: Mapping[str, str]
) -> Definition:
    """Return the definition of a table, from the arguments that Spark passes to a catalog.

    Raises:
        ConfigurationError: The statement has a clause or a property that a log cannot have.
        SchemaMismatchError: A column is NOT NULL.
    """
    if partitions:
        raise ConfigurationError(
            f"a log has no partitions, and the statement has {', '.join(partitions)}: leave "
            "PARTITIONED BY, CLUSTER BY and CLUSTERED BY out",
            key="partitions",
        )
    provider = properties.get("provider", FORMAT_NAME)
    if provider.lower() != FORMAT_NAME:
        raise ConfigurationError(
            f"a table of this catalog is a log, and the statement has the provider {provider!r}: "
            f'leave USING out, write USING {FORMAT_NAME}, or use .format("{FORMAT_NAME}")',
            key="provider",
        )
    for column in _not_nullable(struct_of(schema_json), ""):
        raise SchemaMismatchError(
            f"column {column!r} is NOT NULL, but all columns of a log accept null: leave NOT NULL "
            "out",
            column=column,
            expected="a column that accepts null",
            got="NOT NULL",
        )
    return Definition(schema_json, properties.get(COMMENT, ""), new_properties(_own(properties)))


def _own(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the log, and omit the properties that Spark itself uses.

    Spark passes each option of the OPTIONS clause twice; the second time, its name has a prefix.
    """
    own = {}
    for name, value in properties.items():
        lower = name.lower()
        if lower in _REFUSED:
            raise ConfigurationError(_REFUSED[lower], key=name)
        if lower not in _IGNORED and not lower.startswith(TABLE_OPTION_PREFIX):
            own[name] = value
    return own


def _not_nullable(data_type: Any, path: str) -> Iterator[str]:
    """Yield the paths of all parts of a type that cannot be null.

    The keys of maps are left out, because Spark never allows null keys.
    """
    if not isinstance(data_type, dict):
        return
    for field in data_type.get("fields", ()):
        inside = f"{path}{field['name']}"
        if not field["nullable"]:
            yield inside
        yield from _not_nullable(field["type"], f"{inside}.")
    for part, nullable in (("element", "containsNull"), ("value", "valueContainsNull")):
        if nullable in data_type:
            if not data_type[nullable]:
                yield f"{path}{part}"
            yield from _not_nullable(data_type[f"{part}Type"], f"{path}{part}.")


def added_columns(
    log: str, current_json: str, additions: Sequence[tuple[Sequence[str], Mapping[str, Any]]]
) -> str:
    """Return a schema with only the added columns and fields, as Spark's JSON.

    Args:
        log: The name of the log.
        current_json: The columns of the log, as Spark's JSON.
        additions: For each new column or field: its path, and its definition in Spark's JSON.
    """
    current = struct_of(current_json)
    parts = [type_text(_only(current, path, field)) for path, field in additions]
    for column in (each for part in parts for each in _not_nullable(struct_of(part), "")):
        raise SchemaMismatchError(
            f"column {column!r} is NOT NULL, but older rows of log {log!r} do not have it, and all "
            "columns of a log accept null: leave NOT NULL out",
            log=log,
            column=column,
            expected="a column that accepts null",
            got="NOT NULL",
        )
    return reduce(lambda one, other: merge(one, other, log=log, add_columns=True), parts)


def _only(data_type: Any, path: Sequence[str], field: Mapping[str, Any]) -> Any:
    """Return `data_type` with only the new field `field` at `path`, and its parent fields."""
    first, *rest = path
    if data_type["type"] != "struct":
        part = f"{first}Type"
        return {**data_type, part: _only(data_type[part], rest, field)}
    if not rest:
        return {"type": "struct", "fields": [{**field, "name": first}]}
    fields = data_type["fields"]
    place = place_of(first, [each["name"] for each in fields])
    assert place is not None, "Spark has looked up the field that contains the new field"
    parent = fields[place]
    inside = {**parent, "type": _only(parent["type"], rest, field)}
    return {"type": "struct", "fields": [inside]}
