"""A log's schema record: the Arrow schema message of a Spark schema (LOGS.md#G6)."""

from __future__ import annotations

import json

from ledgerlog_spark.arrow.spark_types import arrow_schema_of, schema_json_of
from ledgerlog_spark.arrow.stream_codec import decode_schema, encode_schema

_SPARK_SCHEMA = b"ledgerlog.spark_schema"


def stored_schema(schema_json: str) -> bytes:
    """The schema record of a Spark schema.

    What Arrow has no word for (metadata of fields, with collations and comments; the fields of an
    interval) goes along in metadata of the schema, as Spark's JSON.
    """
    schema = arrow_schema_of(schema_json)
    if json.loads(schema_json_of(schema)) != json.loads(schema_json):
        schema = schema.with_metadata({_SPARK_SCHEMA: schema_json.encode()})
    return encode_schema(schema)


def spark_schema(stored: bytes) -> str:
    """The Spark schema, as JSON, of a schema record."""
    schema = decode_schema(stored)
    told = (schema.metadata or {}).get(_SPARK_SCHEMA)
    if told is not None:
        return str(told.decode())
    return schema_json_of(schema)
