"""The answer to one request of the catalog, as values that `json.dumps` accepts.

A request contains the `format`, which is 1, the kind of the request as `catalog`, the `options` of
the catalog, and the arguments for this kind. An answer contains the `format`, which is 1, and
either the result for this kind or an `error`. An error contains its class as `kind`, its `message`
and its `fields`, so that the catalog can raise Spark's exception for this error, without a Python
traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledgerlog_spark.composition import service_uri
from ledgerlog_spark.datasource.catalog.definitions import Definition, definition_of
from ledgerlog_spark.datasource.catalog.names import has_namespace, namespaces_in, tables_in
from ledgerlog_spark.datasource.catalog.tables import Tables
from ledgerlog_spark.datasource.cluster import client_of
from ledgerlog_spark.datasource.jvm.answers import FORMAT, check_format
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.source import LedgerDataSource
from ledgerlog_spark.errors import LedgerLogError

Request = Mapping[str, Any]
Answer = dict[str, Any]


def answer_to(source: type[LedgerDataSource], request: Request) -> Answer:
    """Perform a request of the catalog, and return the answer."""
    check_format(request)
    try:
        options = request["options"]
        given = SourceOptions.parse(options).metadata_service_uri
        client = client_of(service_uri(given, source.configured_service_uri))
        answer = answer_of(Tables(client, options), request)
    except LedgerLogError as error:
        answer = {"error": error_to_json(error)}
    return {"format": FORMAT, **answer}


def answer_of(tables: Tables, request: Request) -> Answer:
    """Perform the request, and return its result. Raises the errors of the methods of `Tables`."""
    return _ANSWERS[request["catalog"]](tables, request) or {}


def error_to_json(error: LedgerLogError) -> Answer:
    """Return the class, the text and the fields of an error, as values for JSON."""
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "fields": {name: str(value) for name, value in error.fields.items()},
    }


def _names(tables: Tables, request: Request) -> Answer:
    names, namespace = tables.names(), request["namespace"]
    return {
        "tables": tables_in(names, namespace),
        "namespaces": namespaces_in(names, namespace),
        "exists": has_namespace(names, namespace),
    }


def _staged(tables: Tables, request: Request) -> Answer:
    return tables.staged(request["name"], _definition(request), request["mode"])


def _definition(request: Request) -> Definition:
    return definition_of(request["schema"], request["partitions"], request["properties"])


def _create(tables: Tables, request: Request) -> None:
    tables.create(request["name"], _definition(request))


def _replace(tables: Tables, request: Request) -> None:
    tables.replace(_definition(request), request["write"])


def _add_columns(tables: Tables, request: Request) -> None:
    additions = [(each["path"], each["field"]) for each in request["columns"]]
    tables.add_columns(request["name"], additions)


_ANSWERS: dict[str, Callable[[Tables, Request], Answer | None]] = {
    "names": _names,
    "load": lambda tables, request: tables.load(request["name"], request["travel"]),
    "rows": lambda tables, request: {"rows": tables.rows(request["name"], request["detail"])},
    "create": _create,
    "stage": _staged,
    "replace": _replace,
    "truncate": lambda tables, request: tables.truncate(request["name"], request["log_id"]),
    "drop": lambda tables, request: {"dropped": tables.drop(request["name"])},
    "set_properties": lambda tables, request: tables.set_properties(
        request["name"], request["changes"]
    ),
    "add_columns": _add_columns,
}
