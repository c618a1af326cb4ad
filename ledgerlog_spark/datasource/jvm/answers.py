"""The answer to one request of the JVM engine, as values that `json.dumps` accepts.

A request for the schema of a read contains `format` (the number 1) and the `options` of the read.
The answer contains `format` 1 and `schema`, the schema as Spark's JSON.

A request for a scan contains

- `format`: the number 1,
- `options`: the options of the read,
- `table` and `columns`: the columns of the whole table and of the scan, as Spark's JSON,
- `case_sensitive`: whether the case of names matters,
- `filters`: the filters of the query, see `skipping.predicates`,
- `top`, only in a query with an order and a limit: a column, its order and the number of rows,
- `aggregates`, only if values are requested instead of rows: a `function` for each value, and a
  `column` except for a count of rows,
- `tasks`, only for a micro-batch: the tasks of the Python stream, pickled and in base64,
- `pinned`, only in later requests for the same table: the value of `pinned` in the first answer.

The answer contains `format` 1 and one of the following fields. Except for a micro-batch, it also
contains `pinned`, see `scan.pinned`.

- `aggregates`: the values, or null if only a scan can compute them,
- `delegate`: the reason why the Python source has to run the scan. In this case, the answer also
  contains the `options` of that scan,
- `plan`: the `ScanPlan`. In this case, the answer also contains all other input that the tasks in
  the JVM need. A stored schema may have a `filter` for its rows (see `skipping.row_filters`).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql.types import StructType

from ledgerlog_spark.arrow.stream_codec import decode_schema
from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.creation import check_ledger_password
from ledgerlog_spark.datasource.cluster import client_of, password_in
from ledgerlog_spark.datasource.jvm.aggregates import values_of
from ledgerlog_spark.datasource.jvm.batches import planned_batch
from ledgerlog_spark.datasource.jvm.origins import ConversionNeededError, origins_of
from ledgerlog_spark.datasource.scan.pinned import (
    PINNED_OPTION,
    text_of_ledger,
    text_of_logs,
)
from ledgerlog_spark.datasource.scan.plan import ScanPlan
from ledgerlog_spark.datasource.scan.plan_json import plan_to_json
from ledgerlog_spark.datasource.scan.planning import PlannedScan
from ledgerlog_spark.datasource.scan.reader import BatchReader, RawReader
from ledgerlog_spark.datasource.schemas import METADATA_COLUMNS
from ledgerlog_spark.datasource.skipping.needs import Needs
from ledgerlog_spark.datasource.skipping.predicates import predicate_of
from ledgerlog_spark.datasource.skipping.row_filters import places_in, row_filter
from ledgerlog_spark.datasource.skipping.row_runs import StoredColumns
from ledgerlog_spark.datasource.skipping.top import Top
from ledgerlog_spark.datasource.source import LedgerDataSource
from ledgerlog_spark.datasource.stream.reader import LedgerStreamReader
from ledgerlog_spark.datasource.stream.watched_logs import patiently
from ledgerlog_spark.errors import BookieUnavailableError, UnauthorizedError, WireFormatError
from ledgerlog_spark.metadata.service_uri import parse_service_uri
from ledgerlog_spark.model import LedgerMetadata

FORMAT = 1

_Reader = BatchReader | LedgerStreamReader


def answer_to(source: type[LedgerDataSource], request: Mapping[str, Any]) -> dict[str, Any]:
    """Plan a scan, compute its aggregates, or determine the schema of a read.

    Raises the errors of `BatchReader.partitions`, or for a schema the errors of
    `LedgerDataSource.schema`.
    """
    check_format(request)
    if "columns" not in request:
        schema = source(options=request["options"]).schema()
        return {"format": FORMAT, "schema": schema.json()}
    options = _options_of(source, request)
    columns = StructType.fromJson(json.loads(request["columns"]))
    if "tasks" in request:
        stream = source(options=options).streamReader(columns)
        assert isinstance(stream, LedgerStreamReader), "a stream with wrong options has no tasks"
        batch, password = planned_batch(request["tasks"])
        scan = batch.for_columns(stream.columns.names)
        return patiently(lambda: _answer(stream, scan, password, request, options))
    pinned = request.get("pinned")
    reader = source(options=_with_pinned(options, pinned)).reader(columns)
    aggregates = request.get("aggregates")
    if not isinstance(reader, BatchReader):
        assert isinstance(reader, RawReader), "a scan reads logs or one ledger"
        # Even a count needs the last add confirmed of the ledger, which only a scan reads.
        if aggregates is not None:
            return {"format": FORMAT, "aggregates": None}
        pinned = pinned or text_of_ledger(reader.last_entry_id())
        delegated = _delegated("the entries of one ledger", _with_pinned(options, pinned))
        return {**delegated, "pinned": pinned}
    password = password_in(reader.options.password_file)
    scan = reader.planned(password, _needs_of(request, reader))
    pinned = text_of_logs(scan.pinned)
    if aggregates is None:
        options = _with_pinned(options, pinned)
        return {**_answer(reader, scan, password, request, options), "pinned": pinned}
    try:
        # The values have the stored types. This call raises an error if the query expects other
        # types.
        _schemas_of(reader, scan, ignores_case=not request["case_sensitive"])
        values = values_of(reader, scan, aggregates, password)
    except ConversionNeededError:
        values = None
    return {"format": FORMAT, "aggregates": values, "pinned": pinned}


def check_format(request: Mapping[str, Any]) -> None:
    """Raise WireFormatError if the format number of a request is not `FORMAT`."""
    if request["format"] != FORMAT:
        raise WireFormatError(
            f"the jar sends requests of format {request['format']}, and this package answers "
            f"format {FORMAT}: the jar and the package have to be of the same release"
        )


def _needs_of(request: Mapping[str, Any], reader: BatchReader) -> Needs:
    top = request.get("top")
    return Needs(
        [predicate_of(expression) for expression in request["filters"]],
        top=None
        if top is None
        else Top(top["column"], top["descending"], top["nulls_first"], top["limit"]),
        include_metadata=reader.options.include_metadata,
        first_columns=lambda schema: places_in(_row_filter(schema, request, reader) or {}),
    )


def _row_filter(
    schema: bytes, request: Mapping[str, Any], reader: _Reader
) -> dict[str, Any] | None:
    """Return the filter that a task may apply before it reads the other columns of an entry."""
    stored = StoredColumns(schema, include_metadata=reader.options.include_metadata)
    return row_filter(request["filters"], stored)


def _answer(
    reader: _Reader,
    scan: PlannedScan,
    password: bytes,
    request: Mapping[str, Any],
    options: dict[str, str],
) -> dict[str, Any]:
    """Return the plan, or the reason why the Python source has to run the scan or micro-batch."""
    try:
        schemas = _schemas_of(reader, scan, ignores_case=not request["case_sensitive"])
        for each, stored in zip(schemas, scan.schemas.values(), strict=True):
            if (found := _row_filter(stored, request, reader)) is not None:
                each["filter"] = found
        _check_read_here(scan.plan, password)
    except ConversionNeededError as error:
        return _delegated(str(error), options)
    return _planned(reader, scan, schemas, password)


def _options_of(source: type[LedgerDataSource], request: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of the read and of its table.

    `includeMetadata` is added if the scan reads metadata columns. `engine` is removed.
    """
    table = StructType.fromJson(json.loads(request["table"]))
    options = {
        name: value
        for name, value in source(options=request["options"]).options_of_read(table).items()
        if name.lower() != "engine"
    }
    known = set(table.names)
    columns = StructType.fromJson(json.loads(request["columns"]))
    if any(name in METADATA_COLUMNS and name not in known for name in columns.names):
        options["includeMetadata"] = "true"
    return options


def _with_pinned(options: dict[str, str], pinned: str | None) -> dict[str, str]:
    return options if pinned is None else {**options, PINNED_OPTION: pinned}


def _delegated(reason: str, options: dict[str, str]) -> dict[str, Any]:
    return {"format": FORMAT, "delegate": reason, "options": options}


def _check_read_here(plan: ScanPlan, password: bytes) -> None:
    """Raise ConversionNeededError for a wrong password, so that the Python source reports it."""
    for ledger_id, metadata in plan.ledgers.items():
        try:
            check_ledger_password(ledger_id, metadata, password)
        except UnauthorizedError:
            raise ConversionNeededError("a wrong password") from None


def _schemas_of(reader: _Reader, scan: PlannedScan, *, ignores_case: bool) -> list[dict[str, Any]]:
    return [
        {
            "log": log,
            "schema_id": schema_id,
            "schema": base64.b64encode(stored).decode("ascii"),
            "origins": origins_of(
                reader.columns,
                decode_schema(stored),
                include_metadata=reader.options.include_metadata,
                ignores_case=ignores_case,
            ),
        }
        for (log, schema_id), stored in scan.schemas.items()
    ]


def _planned(
    reader: _Reader, scan: PlannedScan, schemas: list[dict[str, Any]], password: bytes
) -> dict[str, Any]:
    service = parse_service_uri(reader.uri)
    members = {
        bookie_id
        for metadata in scan.plan.ledgers.values()
        for fragment in metadata.fragments
        for bookie_id in fragment.ensemble
    }
    client = client_of(reader.uri)

    read = {scanned.ledger_id for part in scan.plan.partitions for scanned in part.ranges}

    async def looked_up(connected: LedgerClient) -> tuple[dict[str, list[Any]], dict[str, str]]:
        path_of = connected.services.ledgers.path
        return await _addresses(connected, members), {str(i): path_of(i) for i in read}

    bookies, paths = client.run(looked_up)
    return {
        "format": FORMAT,
        "plan": plan_to_json(scan.plan),
        "ledgers": {str(i): _ledger(metadata) for i, metadata in scan.plan.ledgers.items()},
        "bookies": bookies,
        "schemas": schemas,
        "service": {
            "connect": service.connect_string,
            "root": service.root,
            "paths": paths,
        },
        "password": base64.b64encode(password).decode("ascii"),
        "fail_on_data_loss": reader.options.fail_on_data_loss,
    }


def _ledger(metadata: LedgerMetadata) -> dict[str, Any]:
    """Return the metadata that a reader in the JVM needs."""
    return {
        "ensemble_size": metadata.quorum.ensemble_size,
        "write_quorum": metadata.quorum.write_quorum,
        "fragments": [[each.first_entry_id, list(each.ensemble)] for each in metadata.fragments],
        "last_entry_id": metadata.last_entry_id if metadata.is_closed else None,
        "digest": metadata.digest_type.name,
    }


async def _addresses(client: LedgerClient, bookie_ids: Iterable[str]) -> dict[str, list[Any]]:
    """Return the host and port of each registered bookie, and whether it can read slices.

    The tasks themselves look up the address of each bookie that is not in the result.
    """
    found: dict[str, list[Any]] = {}

    async def look_up(bookie_id: str) -> None:
        with contextlib.suppress(BookieUnavailableError):
            info = await client.services.registration.info(bookie_id)
            found[bookie_id] = [info.host, info.port, info.takes_slices]

    await asyncio.gather(*map(look_up, bookie_ids))
    return found
