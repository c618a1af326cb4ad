"""Which tables a log can be, and how names of logs form namespaces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgerlog_spark.datasource.catalog.definitions import added_columns, definition_of
from ledgerlog_spark.datasource.catalog.names import has_namespace, namespaces_in, tables_in
from ledgerlog_spark.errors import ConfigurationError, SchemaMismatchError

NAMES = ("a", "a.b", "a.b.c", "a.d", "e.f", "g..h")


def field(name: str, kind: Any = "long", *, nullable: bool = True, **metadata: str) -> Any:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*fields: Any) -> Any:
    return {"type": "struct", "fields": list(fields)}


def array(of: Any, *, contains_null: bool = True) -> Any:
    return {"type": "array", "elementType": of, "containsNull": contains_null}


COLUMNS = json.dumps(struct(field("k")))


@pytest.mark.parametrize(
    ("namespace", "tables", "below"),
    [
        ([], ["a"], ["a", "e", "g"]),
        (["a"], ["b", "d"], ["b"]),
        (["a", "b"], ["c"], []),
        (["g"], [], [""]),
        (["g", ""], ["h"], []),
    ],
)
def test_the_prefixes_of_names_are_namespaces(
    namespace: list[str], tables: list[str], below: list[str]
) -> None:
    assert tables_in(NAMES, namespace) == tables
    assert namespaces_in(NAMES, namespace) == below
    assert has_namespace(NAMES, namespace)


def test_a_table_is_no_namespace_and_the_root_always_exists() -> None:
    assert not has_namespace(NAMES, ["a", "d"])
    assert not has_namespace((), ["a"])
    assert has_namespace((), [])


def test_properties_of_spark_are_left_out_and_those_of_a_log_are_spelled_as_in_the_log() -> None:
    definition = definition_of(
        COLUMNS,
        [],
        {
            "provider": "LEDGER",
            "owner": "me",
            "comment": "flights",
            "retentionms": "5",
            "option.retentionms": "5",
            "writeQuorum": "3",
            "checkpointLocation": "/c",
            "option.checkpointLocation": "/c",
        },
    )
    assert (definition.comment, definition.properties) == ("flights", {"retentionMs": "5"})
    assert definition.options() == {"retentionMs": "5", "logComment": "flights"}


@pytest.mark.parametrize(
    ("partitions", "properties", "text"),
    [
        (["identity(k)"], {}, r"identity\(k\): leave PARTITIONED BY"),
        ([], {"provider": "parquet"}, "the provider 'parquet'"),
        ([], {"location": "/x"}, "no LOCATION"),
        ([], {"external": "true"}, "no table is EXTERNAL"),
        ([], {"collation": "UNICODE"}, "no DEFAULT COLLATION"),
        ([], {"LOG": "x"}, "leave the option log out"),
        ([], {"path": "x"}, "leave the option path out"),
        ([], {"retentionMS": "soon"}, "retentionMs|whole number"),
        ([], {"colour": "red"}, "no property 'colour'"),
    ],
)
def test_a_clause_that_a_log_has_no_place_for_is_refused(
    partitions: list[str], properties: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        definition_of(COLUMNS, partitions, properties)


@pytest.mark.parametrize(
    ("column", "path"),
    [
        (field("k", nullable=False), "'k'"),
        (field("s", struct(field("x", nullable=False))), r"'s\.x'"),
        (field("a", array("long", contains_null=False)), r"'a\.element'"),
        (
            field(
                "m",
                {
                    "type": "map",
                    "keyType": "long",
                    "valueType": struct(field("x", nullable=False)),
                    "valueContainsNull": True,
                },
            ),
            r"'m\.value\.x'",
        ),
    ],
)
def test_not_null_is_refused_at_every_level(column: Any, path: str) -> None:
    with pytest.raises(SchemaMismatchError, match=f"column {path} is NOT NULL"):
        definition_of(json.dumps(struct(column)), [], {})
    with pytest.raises(SchemaMismatchError, match=f"column {path} is NOT NULL"):
        added_columns("flights", COLUMNS, [([column["name"]], column)])


def test_a_property_that_a_write_cannot_set_is_refused_for_a_table_with_rows() -> None:
    definition = definition_of(COLUMNS, [], {"rollBytes": "1000"})
    with pytest.raises(ConfigurationError, match="cannot set the property rollBytes"):
        definition.options()


def test_only_the_new_columns_and_fields_are_added() -> None:
    current = json.dumps(
        struct(field("k"), field("s", array(struct(field("x"), field("y"))), comment="kept"))
    )
    added = added_columns(
        "flights",
        current,
        [
            (["z"], field("z", "string", comment="new")),
            (["s", "element", "u"], field("u")),
            (["S", "element", "v"], field("v")),
        ],
    )
    assert json.loads(added) == struct(
        field("z", "string", comment="new"),
        field("s", array(struct(field("u"), field("v"))), comment="kept"),
    )
