"""`ledgerlog logs create|append|tail`: commands for records, similar to Kafka's console tools."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerlog_spark.cli.logs.changes import pair_of_property
from ledgerlog_spark.cli.logs.lookup import LogName, json_text, missing, shown_bytes, time_text
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, connect
from ledgerlog_spark.cli.output import AsJson, console, json_lines, picked, print_outcome
from ledgerlog_spark.cli.stop_signals import ends_with_its_reader
from ledgerlog_spark.client.blocking.add_future import AddFuture
from ledgerlog_spark.errors import (
    ConfigurationError,
    InternalError,
    LedgerLogError,
    LogNotFoundError,
)
from ledgerlog_spark.log.records import Record
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, Position
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind

if TYPE_CHECKING:
    from ledgerlog_spark.log.blocking.leader import BlockingLeader
    from ledgerlog_spark.log.blocking.records import BlockingRecordLog

app = typer.Typer()
APPENDS_AHEAD_MAX = 10_000
KINDS = {
    "records": (LogKind.LEADER, LogContent.RECORDS),
    "rows": (LogKind.TRANSACTIONAL, LogContent.ROWS),
}


@app.command("create", epilog="Example: ledgerlog logs create orders rollBytes=67108864")
def create(
    name: LogName,
    properties: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROPERTY=VALUE", help="Properties of the log. `logs set` shows all."
        ),
    ] = None,
    content: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="records (bytes that a leader appends), or rows (which Spark writes).",
        ),
    ] = "records",
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Create an empty log. `logs append` and Spark create a log if it does not exist."""
    if content not in KINDS:
        raise ConfigurationError(
            f"--content {content!r} does not exist; the values are {' and '.join(KINDS)}",
            key="--content",
        )
    kind, holds = KINDS[content]
    chosen = dict(pair_of_property(each) for each in properties or ())
    with connect(uri) as client:
        log = client.logs.create(name, kind=kind, content=holds, properties=chosen)
    how = (
        f"`ledgerlog logs append {name}`"
        if kind is LogKind.LEADER
        else f'df.write.format("ledger").mode("append").save("{name}")'
    )
    print_outcome(
        {"name": name, "log_id": log.log_id, "content": content, "properties": chosen},
        f"log {name} is created; to write to it, run {how}",
        as_json=as_json,
    )


@app.command("append", epilog="Example: ledgerlog logs append orders 'an order' 'another order'")
def append(
    name: LogName,
    records: Annotated[
        list[str] | None,
        typer.Argument(metavar="RECORD", help="Records; by default the lines of standard input."),
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Append records to a log. Create the log if it does not exist.

    The command returns when every record is on disk at an ack quorum of
    bookies. The command takes over the leadership, so another leader cannot
    append any more records. If another program takes over the leadership from
    this command, the acknowledged records stay in the log.
    """
    values: Iterable[bytes] = (
        (record.encode() for record in records) if records else _lines_of_standard_input()
    )
    with connect(uri) as client:
        leader = client.open_log(name, lead=True)
        appended = _Appended()
        try:
            _append_and_close(leader, values, appended)
        finally:
            # The result is also printed after an error or Ctrl-C, because acknowledged records stay
            # in the log.
            print_outcome(
                {"name": name, **picked(appended, "records", "first_offset", "last_offset")},
                appended.as_text(name),
                as_json=as_json,
            )


class _Appended:
    """The number of acknowledged records, and the offsets of the first and the last of them."""

    def __init__(self) -> None:
        self.records = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None

    def add(self, position: Position) -> None:
        self.records += 1
        if self.first_offset is None:
            self.first_offset = position.offset
        self.last_offset = position.offset

    def as_text(self, name: str) -> str:
        if not self.records:
            return f"no record was appended to log {name}"
        number = "1 record was" if self.records == 1 else f"{self.records:,} records were"
        return (
            f"{number} appended to log {name}: "
            f"offsets {self.first_offset:,} to {self.last_offset:,}"
        )


def _lines_of_standard_input() -> Iterator[bytes]:
    if sys.stdin.isatty():
        console.print("each line is one record; Ctrl-D ends the input", style="dim")
    # At most this number of bytes is read of a line. No record can be so long, so the append
    # refuses such a line.
    for line in iter(partial(sys.stdin.buffer.readline, FRAME_SIZE_BYTES_MAX), b""):
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _append_and_close(leader: BlockingLeader, values: Iterable[bytes], appended: _Appended) -> None:
    """Append all values and close the leader.

    If the appends succeed and only closing fails, print a note.
    """
    try:
        _append_all(leader, values, appended)
    except BaseException:
        with contextlib.suppress(LedgerLogError):  # only the first error is reported
            leader.close()
        raise
    try:
        leader.close()
    except (InternalError, LogNotFoundError):
        raise
    except LedgerLogError as error:
        typer.echo(
            f"note: all records are acknowledged, but the log was not closed: {error}", err=True
        )


def _append_all(leader: BlockingLeader, values: Iterable[bytes], appended: _Appended) -> None:
    """Append all values.

    If the input is a terminal, wait for each result before the next line is read.
    """
    ahead_max = 0 if sys.stdin.isatty() else APPENDS_AHEAD_MAX
    ahead: deque[AddFuture[Position]] = deque()
    failed: list[LedgerLogError] = []

    def take_oldest() -> None:
        try:
            appended.add(ahead.popleft().result())
        except LedgerLogError as error:
            failed.append(error)

    try:
        for value in values:
            ahead.append(leader.append_async(value))
            while not failed and (len(ahead) > ahead_max or (ahead and ahead[0].done())):
                take_oldest()
            if failed:
                break
    finally:
        while ahead:
            take_oldest()
        if failed:
            raise next((error for error in failed if not error.definite), failed[0])


@app.command("tail", epilog="Example: ledgerlog logs tail orders --from-beginning")
def tail(
    name: LogName,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the oldest record.")
    ] = False,
    offset: Annotated[
        int | None, typer.Option(metavar="N", help="Start with the record at this offset.", min=0)
    ] = None,
    max_records: Annotated[
        int | None, typer.Option(metavar="N", help="End after this many records.", min=1)
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: Annotated[bool, json_lines("record")] = False,
) -> None:
    """Print the records of a log as they are appended, until Ctrl-C.

    By default, the first printed record is the next record that is appended.
    """
    if from_beginning and offset is not None:
        raise ConfigurationError(
            "--from-beginning and --offset exclude each other: pass one of them"
        )
    with ends_with_its_reader(), connect(uri) as client:
        try:
            log = client.open_log(name)
        except LogNotFoundError:
            raise missing(client, name) from None
        start = log.snapshot().interval.start_offset if from_beginning else offset
        left = max_records
        for batch in (_rows if log.schema else _records)(log, start, as_json=as_json):
            shown = batch[:left]
            sys.stdout.buffer.write(b"".join(shown))
            sys.stdout.buffer.flush()
            if left is not None:
                left -= len(shown)
                if left <= 0:
                    return


def _records(log: BlockingRecordLog, start: int | None, *, as_json: bool) -> Iterator[list[bytes]]:
    is_terminal = sys.stdout.isatty()
    for batch in log.tail_batches(start):
        if as_json:
            yield [_json_line(_record_fields(record)) for record in batch]
        elif is_terminal:
            yield [_shown_line(record.value) for record in batch]
        else:
            yield [record.value + b"\n" for record in batch]


def _shown_line(value: bytes) -> bytes:
    """Return the line that shows a record. It has only characters that the terminal supports."""
    return shown_bytes(value).encode(sys.stdout.encoding or "utf-8", "backslashreplace") + b"\n"


def _record_fields(record: Record) -> dict[str, Any]:
    """Return the fields of a record in the output of `--json`.

    If the record is valid UTF-8, `value` is its text. Otherwise, `value_base64` is the record in
    base64.
    """
    fields: dict[str, Any] = {
        "offset": record.offset,
        "append_time": time_text(record.append_time_ms),
        "append_time_ms": record.append_time_ms,
    }
    try:
        return {**fields, "value": record.value.decode()}
    except UnicodeDecodeError:
        return {**fields, "value_base64": base64.b64encode(record.value).decode()}


def _rows(log: BlockingRecordLog, start: int | None, *, as_json: bool) -> Iterator[list[bytes]]:
    for batch in log.tail_rows(start):
        rows = batch.rows.to_pylist()
        if as_json:
            yield [
                _json_line({"offset": n, "row": row}) for n, row in enumerate(rows, batch.offset)
            ]
        else:
            yield [_json_line(row) for row in rows]


def _json_line(value: object) -> bytes:
    text = json.dumps(value, default=json_text, ensure_ascii=console.options.ascii_only)
    return text.encode() + b"\n"
