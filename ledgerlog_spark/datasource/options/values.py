"""Parses and checks options. An unknown option or a wrong value is an error before any I/O."""

from __future__ import annotations

import difflib
import json
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, get_type_hints

from ledgerlog_spark.datasource.options.starting_offsets import (
    EARLIEST,
    ERROR,
    GO_TO_LATEST,
    LATEST,
    Offsets,
    parse_duration,
    parse_moment,
    parse_offsets,
)
from ledgerlog_spark.datasource.options.table import (
    ALIASES,
    CONTINUE,
    FAIL,
    NEAREST,
    SPARKS_OWN,
    SPARKS_TABLE_PROPERTIES,
    TABLE_OPTION_PREFIX,
    Option,
    Use,
    any_text,
    boolean,
    choice,
    log_name,
    log_names,
    names,
    pattern,
    size_bytes,
    text,
    whole_number,
)
from ledgerlog_spark.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The names of logs, or a pattern. A stream may begin before a log matches the pattern."""

    names: tuple[str, ...] = ()  # names of logs, which must exist
    pattern: str | None = None  # a regular expression for the whole name; None if logs are named

    def among(self, existing: Iterable[str]) -> tuple[str, ...]:
        """Return the selected names. With a pattern, only names of existing logs are selected."""
        if self.pattern is None:
            return self.names
        return tuple(name for name in existing if name in self)

    def __contains__(self, name: str) -> bool:
        if self.pattern is None:
            return name in self.names
        return re.fullmatch(self.pattern, name) is not None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"logs that match {self.pattern!r}"
        return f"log {', '.join(map(repr, self.names))}"


_TABLE_HINT = (
    ". For a SQL table: Spark 4.3 passes a table's options to a Python source only if CREATE "
    "TABLE has no column list. Create it with CREATE TABLE t USING ledger OPTIONS (log 'name'), "
    "or read it with SELECT .. FROM t WITH (log = 'name')"
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of one `load`, `save` or table. For times, see `parse_moment`."""

    # fmt: off
    log: Annotated[str | None, Option(Use.BOTH, log_name,
        "name of the log, as in load(name) and save(name)")] = None
    logs: Annotated[tuple[str, ...] | None, Option(Use.READ, log_names,
        "names of several logs, separated by commas")] = None
    log_pattern: Annotated[str | None, Option(Use.READ, pattern,
        "regular expression; selects all logs whose whole name matches it")] = None
    ledger_id: Annotated[int | None, Option(Use.BATCH, whole_number(0),
        "id of one ledger, which is read entry by entry")] = None
    metadata_service_uri: Annotated[str | None, Option(Use.BOTH, text,
        "URI of the cluster, such as zk://host:2181/ledgers")] = None
    password_file: Annotated[str | None, Option(Use.BOTH, text,
        "file with the password of the ledgers (1 to 1,024 bytes)")] = None
    strict_options: Annotated[bool, Option(Use.BOTH, boolean,
        "if false, an unknown option causes a warning instead of an error")] = True
    engine: Annotated[str, Option(Use.BOTH, choice("auto", "jvm", "python"),
        "the program that runs scans: auto, jvm or python")] = "auto"
    columns: Annotated[tuple[str, ...] | None, Option(Use.READ, names,
        "names of the columns to read, in this order")] = None
    starting_offsets: Annotated[Offsets, Option(
        Use.READ, parse_offsets,
        "first row: earliest, latest (the default of streams), an offset, or JSON with an offset "
        "for each log", "rows")] = EARLIEST
    ending_offsets: Annotated[Offsets, Option(
        Use.BATCH, parse_offsets,
        "offset after the last row (in the forms of startingOffsets)", "rows")] = LATEST
    starting_timestamp: Annotated[int | None, Option(Use.READ, parse_moment,
        "reads rows that were committed at this time or later: ms since 1970, ISO 8601 (UTC by "
        "default), or a duration before now such as -10m")] = None
    ending_timestamp: Annotated[int | None, Option(Use.BATCH, parse_moment,
        "reads rows that were committed before this time (in the forms of startingTimestamp)",
        )] = None
    starting_offsets_by_timestamp_strategy: Annotated[str, Option(
        Use.READ, choice(ERROR, GO_TO_LATEST),
        "if all rows are older than startingTimestamp: with error the read fails, with "
        "latest it starts at the end",
        )] = ERROR
    version_as_of: Annotated[int | None, Option(Use.BATCH, whole_number(0),
        "number of the version to read")] = None
    timestamp_as_of: Annotated[int | None, Option(Use.BATCH, parse_moment,
        "reads the version that was the newest at this time (in the forms of startingTimestamp)",
        )] = None
    fail_on_data_loss: Annotated[bool, Option(Use.READ, boolean,
        "if false, the read skips rows that no longer exist")] = True
    on_overwrite: Annotated[str, Option(Use.STREAM, choice(FAIL, CONTINUE),
        "when the log is overwritten: with fail the query ends, with continue it reads "
        "the new rows")] = FAIL
    max_rows_per_trigger: Annotated[int | None, Option(Use.STREAM, whole_number(1),
        "maximum number of rows in a micro-batch; also named maxOffsetsPerTrigger",
        "rows")] = None
    max_bytes_per_trigger: Annotated[int, Option(Use.STREAM, size_bytes(1),
        "approximate maximum stored size of a micro-batch, which has at least one entry",
        "bytes")] = 1 << 30
    min_rows_per_trigger: Annotated[int | None, Option(Use.STREAM, whole_number(1),
        "minimum number of rows in a micro-batch; also named minOffsetsPerTrigger",
        "rows")] = None
    max_trigger_delay: Annotated[int, Option(Use.STREAM, parse_duration,
        "maximum time to wait for minRowsPerTrigger rows; may have a unit, such as 15m",
        "ms")] = 900_000
    include_metadata: Annotated[bool, Option(Use.READ, boolean,
        "adds the columns _log, _ledger, _entry, _offset, _append_time")] = False
    max_bytes_per_partition: Annotated[int, Option(Use.READ, size_bytes(1),
        "maximum size of the input of one task", "bytes")] = 128 << 20
    min_partitions: Annotated[int | None, Option(Use.READ, whole_number(1, 1_000_000),
        "minimum number of tasks; by default, as many as can run concurrently, each with 4 MiB "
        "or more")] = None
    max_records_per_partition: Annotated[int | None, Option(Use.READ, whole_number(1),
        "maximum number of rows of one task, rounded up to whole entries", "rows")] = None
    create_if_missing: Annotated[bool, Option(Use.WRITE, boolean,
        "creates the log if it does not exist")] = True
    error_if_exists: Annotated[bool, Option(Use.WRITE, boolean,
        "true: the write creates the log, and fails if the log exists")] = False
    ensemble_size: Annotated[int | None, Option(Use.WRITE, whole_number(1, 1024),
        "number of bookies of a ledger, for a new log; 3 by default", "bookies")] = None
    write_quorum: Annotated[int | None, Option(Use.WRITE, whole_number(1, 1024),
        "number of copies of an entry, for a new log; 3 by default, or the ensemble size if it is "
        "smaller", "bookies")] = None
    ack_quorum: Annotated[int | None, Option(Use.WRITE, whole_number(1, 1024),
        "number of copies that must be durable before an entry is acknowledged, for a new log; 2 "
        "by default, or the write quorum if it is smaller", "bookies")] = None
    digest_type: Annotated[str | None, Option(Use.WRITE, choice("CRC32C", "CRC32", "HMAC", "DUMMY"),
        "digest of entries, for a new log; CRC32C by default")] = None
    txn_app_id: Annotated[str | None, Option(Use.WRITE, text,
        "application ID; with txnVersion it makes the write idempotent")] = None
    txn_version: Annotated[int | None, Option(Use.WRITE, whole_number(0),
        "number of the write; must increase with each write of the same txnAppId")] = None
    merge_schema: Annotated[bool, Option(Use.WRITE, boolean, "adds new columns to the log")] = False
    overwrite_schema: Annotated[bool, Option(Use.WRITE, boolean,
        "an overwrite also replaces the columns of the log")] = False
    overwrite_if_changed: Annotated[bool, Option(Use.WRITE, boolean,
        "an overwrite also replaces rows that other jobs committed after it began")] = False
    log_comment: Annotated[str | None, Option(Use.WRITE, any_text,
        "comment of the log, for a new log or with overwriteSchema")] = None
    expected_version: Annotated[int | None, Option(Use.WRITE, whole_number(0),
        "number of the version that the job read; the write fails if the log has another version",
        )] = None
    expected_log_id: Annotated[str | None, Option(Use.WRITE, text,
        "id of the log that the job read; the write fails if the name belongs to another log",
        )] = None
    retention_ms: Annotated[int | None, Option(Use.WRITE, whole_number(1),
        "maximum age of rows, for a new log; no limit by default", "ms")] = None
    retention_bytes: Annotated[int | None, Option(Use.WRITE, size_bytes(1),
        "maximum size of all rows, for a new log; no limit by default", "bytes")] = None
    version_retention_ms: Annotated[int | None, Option(Use.WRITE, whole_number(1),
        "time to keep old versions, for a new log; 7 days by default", "ms")] = None
    deleted_retention_ms: Annotated[int | None, Option(Use.WRITE, whole_number(1),
        "time to keep ledgers that no version needs, for a new log; 24 hours by default",
        "ms")] = None
    staging_ttl_ms: Annotated[int | None, Option(Use.WRITE, whole_number(1),
        "time to keep uncommitted ledgers, for a new log; 7 days by default", "ms")] = None
    txn_retention_ms: Annotated[int | None, Option(Use.WRITE, whole_number(1),
        "time to keep replaced runs of an application ID, for a new log; 30 days by default",
        "ms")] = None
    target_entry_bytes: Annotated[int, Option(Use.WRITE, size_bytes(4096, 4 << 20),
        "approximate size of an encoded entry", "bytes")] = 1 << 20
    compression: Annotated[str, Option(Use.WRITE, choice("zstd", "lz4", "none"),
        "compression of entries: zstd, lz4 or none")] = "zstd"
    # fmt: on
    given: frozenset[str] = frozenset()  # names of the fields that the user set by an option

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse and check all options. Unknown options and wrong values are errors."""
        lowered = {key.lower(): value for key, value in options.items()}
        strict = BY_LOWER_NAME["strictoptions"]
        is_strict = strict.value_of(lowered.get("strictoptions", "true"))
        values: dict[str, Any] = {}
        for key, value in lowered.items():
            option = BY_LOWER_NAME.get(ALIASES.get(key, key).lower())
            if option is not None:
                _reject_double(key, lowered)
                values[option.attribute] = option.value_of(value)
            elif not is_sparks_own(key, is_table=_is_of_table(lowered)):
                _report_unknown(key, is_strict=is_strict)
        given = frozenset(values)
        _name_log_by_path(lowered, values)
        return cls(**values, given=given)

    @property
    def log_names(self) -> tuple[str, ...]:
        """Names of the logs; empty if the read has a pattern or reads a ledger."""
        return self.logs or ((self.log,) if self.log else ())

    @property
    def selection(self) -> LogSelection:
        """The names or the pattern of the logs to read."""
        return LogSelection(self.log_names, self.log_pattern)

    @property
    def target(self) -> str:
        """The name of the log that is written."""
        assert self.log is not None, "the options of a write are checked"
        return self.log

    def for_read(self) -> SourceOptions:
        """Check the options for a scan, and return them."""
        self._reject_jvm()
        chosen = [
            name
            for name in ("log", "logs", "log_pattern", "ledger_id")
            if getattr(self, name) is not None
        ]
        if len(chosen) != 1:
            raise ConfigurationError(
                'a read needs exactly one of load("name"), "log", "logs", "logPattern" and '
                f'"ledgerId"; got {", ".join(chosen) or "none"}{"" if chosen else _TABLE_HINT}',
                got=tuple(chosen),
            )
        for edge, option in (("starting", "startingOffsets"), ("ending", "endingOffsets")):
            if {f"{edge}_offsets", f"{edge}_timestamp"} <= self.given:
                raise ConfigurationError(
                    f'options "{option}" and "{edge}Timestamp" both set the '
                    f"{'start' if edge == 'starting' else 'end'}: set only one",
                    option=option,
                )
        if self.ledger_id is not None and self.include_metadata:
            raise ConfigurationError(
                'option "includeMetadata" adds columns to the rows of logs, and "ledgerId" reads '
                "entries, which have these columns already: leave it out",
                option="includeMetadata",
            )
        _reject_backward_times(self.starting_timestamp, self.ending_timestamp)
        if self.version_as_of is not None and chosen != ["log"]:
            raise ConfigurationError(
                'option "versionAsOf" needs a single log: select it with "log"',
                option="versionAsOf",
            )
        if {"version_as_of", "timestamp_as_of"} <= self.given:
            raise ConfigurationError(
                'options "versionAsOf" and "timestampAsOf" both select a version: set only one',
                option="timestampAsOf",
            )
        return self

    def for_stream(self) -> SourceOptions:
        """Check the options for a stream, which by default begins at the log's end. Return them."""
        for option in TABLE:
            if option.use is Use.BATCH and option.attribute in self.given:
                raise ConfigurationError(
                    f'option "{option.name}" is for batch reads, but a stream reads continuously. '
                    f"Leave it out, or use spark.read.",
                    option=option.name,
                )
        is_given = "starting_offsets" in self.given
        read = (self if is_given else replace(self, starting_offsets=LATEST)).for_read()
        named = read.starting_offsets
        others = () if isinstance(named, str) else named.keys() - {"*"}
        if wrong := sorted(name for name in others if name not in read.selection):
            raise ConfigurationError(
                f'option "startingOffsets" names {", ".join(map(repr, wrong))}, but the stream '
                f"reads {read.selection}",
                option="startingOffsets",
                logs=tuple(wrong),
            )
        return read

    def for_write(self) -> SourceOptions:
        """Check the options for a write, and return them."""
        self._check_write()
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise ConfigurationError(
                'options "txnAppId" and "txnVersion" make a write idempotent together: set both, '
                "or neither",
                option="txnAppId",
            )
        return self

    @property
    def may_create(self) -> bool:
        """Whether a write creates a missing log, and accepts a log that exists."""
        requires_log = self.expected_version is not None or self.expected_log_id is not None
        return self.create_if_missing and not self.error_if_exists and not requires_log

    def check_mode(self, *, overwrite: bool) -> None:
        """Raise an error if the options do not fit the mode of the write: overwrite or append."""
        for name, is_set in (
            ("overwriteSchema", self.overwrite_schema),
            ("overwriteIfChanged", self.overwrite_if_changed),
        ):
            if is_set and not overwrite:
                raise ConfigurationError(
                    f'option "{name}" is for overwrites, but this write appends: leave it out, or '
                    'write with mode("overwrite"), or outputMode("complete") in a stream',
                    option=name,
                )
        if self.error_if_exists:
            self._check_creation(overwrite=overwrite)
        if self.overwrite_if_changed and self.expected_version is not None:
            raise ConfigurationError(
                'option "expectedVersion" forbids changes by other jobs, but "overwriteIfChanged" '
                "allows them: set only one",
                option="expectedVersion",
            )
        if self.overwrite_schema and self.merge_schema:
            raise ConfigurationError(
                'options "overwriteSchema" and "mergeSchema" both change the columns: set only one',
                option="overwriteSchema",
            )

    def _check_creation(self, *, overwrite: bool) -> None:
        """Raise an error if an option or the mode of the write needs a log that exists."""
        for name, is_set in (
            ("mode", overwrite),
            ("createIfMissing", not self.create_if_missing),
            ("expectedVersion", self.expected_version is not None),
            ("expectedLogId", self.expected_log_id is not None),
        ):
            if is_set:
                what = 'mode("overwrite")' if name == "mode" else f'the option "{name}"'
                raise ConfigurationError(
                    f'option "errorIfExists" creates the log, and {what} is for a log that exists: '
                    "use only one of them",
                    option="errorIfExists",
                )

    def for_stream_write(self) -> SourceOptions:
        """Check the options for a streaming write, and return them."""
        self._check_write()
        if self.txn_version is not None:
            raise ConfigurationError(
                'leave the option "txnVersion" out: in a stream, the batch id takes its place',
                option="txnVersion",
            )
        for name, is_set in (
            ("expectedVersion", self.expected_version is not None),
            ("expectedLogId", self.expected_log_id is not None),
            ("errorIfExists", self.error_if_exists),
        ):
            if is_set:
                raise ConfigurationError(
                    f'option "{name}" is for one write, and a stream writes many batches: leave it '
                    "out, or write the batch in foreachBatch",
                    option=name,
                )
        return self

    def _check_write(self) -> None:
        self._reject_jvm()
        if self.log is None:
            raise ConfigurationError(
                'select the log to write with save("name"), or start("name") of a stream',
                option="log",
            )

    def _reject_jvm(self) -> None:
        if self.engine == "jvm":
            raise ConfigurationError(
                'option "engine" is jvm, but the JVM engine is not active here: its jar is '
                'missing, or for another version of Spark, or "spark.ledgerlog.engine" is python. '
                'Leave the option out, or set it to "python". `ledgerlog doctor` shows the jar.',
                option="engine",
            )


def _declared() -> Iterable[Option]:
    hints = get_type_hints(SourceOptions, include_extras=True)
    for field in fields(SourceOptions):
        for option in getattr(hints[field.name], "__metadata__", ()):
            yield replace(option, attribute=field.name, default=field.default)


TABLE = tuple(_declared())
BY_LOWER_NAME = {option.name.lower(): option for option in TABLE}


def _reject_backward_times(start: int | None, end: int | None) -> None:
    """Raise an error if `end` is before `start`.

    An absolute time is not compared with a relative time.
    """
    if start is None or end is None or (start < 0) != (end < 0) or start <= end:
        return
    raise ConfigurationError(
        'option "endingTimestamp" is before "startingTimestamp", so no row is between them. '
        "Swap the two times, or correct one time.",
        option="endingTimestamp",
    )


def is_sparks_own(key: str, *, is_table: bool) -> bool:
    """Whether Spark itself adds `key` (in lower case). Such a key is not an error of the user."""
    of_table = key in SPARKS_TABLE_PROPERTIES or key.startswith(TABLE_OPTION_PREFIX)
    return key in SPARKS_OWN or (is_table and of_table)


def _is_of_table(lowered: Mapping[str, str]) -> bool:
    """Whether Spark's catalog passes the options. It passes them only to create a table."""
    return "provider" in lowered


def table_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that a table stores: the log's name and the options of this source.

    The names of the options are in lower case. The result is empty if the statement creates no
    table. So `save` does not store options with its rows.
    """
    lowered = {key.lower(): value for key, value in options.items()}
    if not _is_of_table(lowered):
        return {}
    return {
        key: value
        for key, value in lowered.items()
        if key in BY_LOWER_NAME or key in ALIASES or key in {"path", "paths"}
    }


def _reject_double(key: str, lowered: Mapping[str, str]) -> None:
    alias = ALIASES.get(key)
    if alias is not None and alias.lower() in lowered:
        raise ConfigurationError(
            f'options "{key}" and "{alias}" are the same: set only one', option=alias
        )


def _report_unknown(key: str, *, is_strict: bool) -> None:
    nearest = NEAREST.get(key)
    if nearest is None:
        near = difflib.get_close_matches(key, BY_LOWER_NAME, n=1, cutoff=0.6)
        nearest = BY_LOWER_NAME[near[0]].name if near else None
    guess = f' Did you mean "{nearest}"?' if nearest else ""
    known = ", ".join(option.name for option in TABLE)
    message = f'unknown option "{key}".{guess} Options are: {known}.'
    if is_strict:
        raise ConfigurationError(
            f'{message} Set "strictOptions" to "false" to make this a warning.',
            option=key,
            nearest=nearest,
        )
    warnings.warn(message, UserWarning, stacklevel=4)


def _name_log_by_path(lowered: Mapping[str, str], values: dict[str, Any]) -> None:
    """Set the option `log` or `logs` from the path that Spark passes.

    Spark passes `load("x")` as `path`, and `load(["x", "y"])` as a JSON list in `paths`.
    """
    path, paths = lowered.get("path"), lowered.get("paths")
    if path is None and paths is not None:
        path = ",".join(_json_names(paths))
    if path is None:
        return
    key = "logs" if "," in path else "log"
    value = BY_LOWER_NAME[key].value_of(path)
    if values.get(key, value) != value:
        raise ConfigurationError(
            f'the path is {path!r}, but the option "{key}" is {values[key]!r}: set only one',
            option=key,
        )
    values[key] = value


def _json_names(paths: str) -> list[str]:
    try:
        listed = json.loads(paths)
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise ConfigurationError(f"load needs names of logs, got {paths!r}", option="paths")
    return listed
