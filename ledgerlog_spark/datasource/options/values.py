"""Checked values of options: an unknown or wrong option is an error before any I/O."""

from __future__ import annotations

import difflib
import json
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from ledgerlog_spark.datasource.options.starting_offsets import LATEST, parse_offsets
from ledgerlog_spark.datasource.options.table import (
    ALIASES,
    BY_LOWER_NAME,
    NEAREST,
    SPARKS_OWN,
    SPARKS_TABLE_PROPERTIES,
    TABLE,
    TABLE_OPTION_PREFIX,
    Use,
)
from ledgerlog_spark.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a scan; the fields are described in `table.py`."""

    log: str | None
    logs: tuple[str, ...] | None
    log_pattern: str | None
    ledger_id: int | None
    password_file: str | None
    columns: tuple[str, ...] | None
    starting_offsets: Mapping[str, int] | str
    ending_offsets: Mapping[str, int] | str
    starting_timestamp: int | None
    ending_timestamp: int | None
    starting_offsets_by_timestamp_strategy: str
    version_as_of: int | None
    timestamp_as_of: int | None
    fail_on_data_loss: bool
    include_metadata: bool
    max_bytes_per_partition: int
    min_partitions: int | None
    max_records_per_partition: int | None

    @property
    def log_names(self) -> tuple[str, ...]:
        """The named logs; empty when the read has a pattern or reads a ledger."""
        return self.logs or ((self.log,) if self.log else ())

    @property
    def selection(self) -> LogSelection:
        """The logs that are read."""
        return LogSelection(self.log_names, self.log_pattern)


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Logs by name or by pattern.

    Attributes:
        names: The named logs; they have to exist.
        pattern: A regular expression that matches the whole name; None where logs are named. Logs
            that match it may be created later, or never.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def among(self, existing: Iterable[str]) -> tuple[str, ...]:
        """The selected names; with a pattern, only those that exist."""
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


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of a streaming read; the fields are described in `table.py`.

    Attributes:
        read: The options that batch reads have too.
    """

    read: ReadOptions
    on_overwrite: str
    max_rows_per_trigger: int | None
    max_bytes_per_trigger: int
    min_rows_per_trigger: int | None
    max_trigger_delay: int


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write; the fields are described in `table.py`."""

    log: str
    password_file: str | None
    create_if_missing: bool
    ensemble_size: int | None
    write_quorum: int | None
    ack_quorum: int | None
    digest_type: str | None
    txn_app_id: str | None
    txn_version: int | None
    merge_schema: bool
    overwrite_schema: bool
    overwrite_if_changed: bool
    retention_ms: int | None
    retention_bytes: int | None
    version_retention_ms: int | None
    deleted_retention_ms: int | None
    staging_ttl_ms: int | None
    txn_retention_ms: int | None
    target_entry_bytes: int
    compression: str


_TABLE_HINT = (
    ". For a SQL table: Spark 4.3 passes a table's options to a Python source only if CREATE "
    "TABLE has no column list. Create it with CREATE TABLE t USING ledger OPTIONS (log 'name'), "
    "or read it with SELECT .. FROM t WITH (log = 'name')"
)

Chosen = TypeVar("Chosen", ReadOptions, WriteOptions)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of one `load`, `save` or table, parsed.

    Attributes:
        values: By attribute name, defaults filled in.
        given: Attribute names of the options that were given.
    """

    values: Mapping[str, Any]
    given: frozenset[str]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Check every option: unknown keys and wrong values are errors."""
        lowered = {key.lower(): value for key, value in options.items()}
        strict = BY_LOWER_NAME["strictoptions"]
        is_strict = strict.value_of(lowered.get("strictoptions", "true"))
        values = {option.attribute: option.default for option in TABLE}
        given = set()
        for key, value in lowered.items():
            option = BY_LOWER_NAME.get(ALIASES.get(key, key).lower())
            if option is not None:
                _reject_double(key, lowered)
                values[option.attribute] = option.value_of(value)
                given.add(option.attribute)
            elif not is_sparks_own(key, is_table=_is_of_table(lowered)):
                _report_unknown(key, is_strict=is_strict)
        _name_log_by_path(lowered, values)
        return cls(values, frozenset(given))

    @property
    def metadata_service_uri(self) -> str | None:
        """The option of that name, None when it was not given."""
        uri: str | None = self.values["metadata_service_uri"]
        return uri

    def for_read(self) -> ReadOptions:
        """The options of a scan."""
        _reject_jvm(self.values)
        chosen = [
            name
            for name in ("log", "logs", "log_pattern", "ledger_id")
            if self.values[name] is not None
        ]
        if len(chosen) != 1:
            raise ConfigurationError(
                'a read needs exactly one of load("name"), "log", "logs", "logPattern" and '
                f'"ledgerId"; got {", ".join(chosen) or "none"}{"" if chosen else _TABLE_HINT}',
                got=tuple(chosen),
            )
        values = dict(self.values)
        for edge in ("starting", "ending"):
            attribute, option = f"{edge}_offsets", f"{edge}Offsets"
            values[attribute] = parse_offsets(option, values[attribute])
            if {attribute, f"{edge}_timestamp"} <= self.given:
                raise ConfigurationError(
                    f'options "{option}" and "{edge}Timestamp" both set the '
                    f"{'start' if edge == 'starting' else 'end'}: set only one",
                    option=option,
                )
        if self.values["ledger_id"] is not None and values["include_metadata"]:
            raise ConfigurationError(
                'option "includeMetadata" adds columns to the rows of logs, and "ledgerId" reads '
                "entries, which have these columns already: leave it out",
                option="includeMetadata",
            )
        _reject_backward_times(values["starting_timestamp"], values["ending_timestamp"])
        if values["version_as_of"] is not None and chosen != ["log"]:
            raise ConfigurationError(
                'option "versionAsOf" needs a single log: select it with "log"',
                option="versionAsOf",
            )
        if {"version_as_of", "timestamp_as_of"} <= self.given:
            raise ConfigurationError(
                'options "versionAsOf" and "timestampAsOf" both select a version: set only one',
                option="timestampAsOf",
            )
        return _chosen(ReadOptions, values)

    def for_stream(self) -> StreamOptions:
        """The options of a streaming read, which by default begins at the end.

        Raises:
            ConfigurationError: As `for_read`; or an option is given that only batch reads have.
        """
        for option in TABLE:
            if option.use is Use.BATCH and option.attribute in self.given:
                raise ConfigurationError(
                    f'option "{option.name}" is for batch reads, but a stream reads continuously. '
                    f"Leave it out, or use spark.read.",
                    option=option.name,
                )
        values = dict(self.values)
        if "starting_offsets" not in self.given:
            values["starting_offsets"] = LATEST
        read = SourceOptions(values, self.given).for_read()
        _check_named(read)
        rest = [field.name for field in fields(StreamOptions) if field.name != "read"]
        return StreamOptions(read, **{name: values[name] for name in rest})

    def for_write(self) -> WriteOptions:
        """The options of a write."""
        self._check_write()
        if (self.values["txn_app_id"] is None) != (self.values["txn_version"] is None):
            raise ConfigurationError(
                'options "txnAppId" and "txnVersion" make a write idempotent together: set both, '
                "or neither",
                option="txnAppId",
            )
        return _chosen(WriteOptions, self.values)

    def check_mode(self, *, overwrite: bool) -> None:
        """Raise unless the options fit a write that replaces rows, or one that appends them."""
        for attribute, name in (
            ("overwrite_schema", "overwriteSchema"),
            ("overwrite_if_changed", "overwriteIfChanged"),
        ):
            if self.values[attribute] and not overwrite:
                raise ConfigurationError(
                    f'option "{name}" is for overwrites, but this write appends: leave it out, or '
                    'write with mode("overwrite"), or outputMode("complete") in a stream',
                    option=name,
                )
        if self.values["overwrite_schema"] and self.values["merge_schema"]:
            raise ConfigurationError(
                'options "overwriteSchema" and "mergeSchema" both change the columns: set only one',
                option="overwriteSchema",
            )

    def for_stream_write(self) -> WriteOptions:
        """The options of a streaming write."""
        self._check_write()
        if self.values["txn_version"] is not None:
            raise ConfigurationError(
                'option "txnVersion" is the batch id in a stream: leave it out',
                option="txnVersion",
            )
        return _chosen(WriteOptions, self.values)

    def _check_write(self) -> None:
        _reject_jvm(self.values)
        if self.values["log"] is None:
            raise ConfigurationError(
                'select the log to write with save("name"), or start("name") of a stream',
                option="log",
            )


def _reject_backward_times(start: int | None, end: int | None) -> None:
    """Check the order of two times of one kind, absolute or relative to now."""
    if start is None or end is None or (start < 0) != (end < 0) or start <= end:
        return
    raise ConfigurationError(
        'option "endingTimestamp" is before "startingTimestamp", so no row is between them. '
        "Swap them, or correct one.",
        option="endingTimestamp",
    )


def _check_named(read: ReadOptions) -> None:
    """Check that the stream reads every log that has an offset, now or later."""
    selection = read.selection
    named = read.starting_offsets
    if isinstance(named, str):
        return
    if wrong := sorted(name for name in named if name != "*" and name not in selection):
        raise ConfigurationError(
            f'option "startingOffsets" names {", ".join(map(repr, wrong))}, but the stream reads '
            f"{selection}",
            option="startingOffsets",
            logs=tuple(wrong),
        )


def is_sparks_own(key: str, *, is_table: bool) -> bool:
    """Whether Spark itself adds the key (in lower case), so that it is not a user's error."""
    of_table = key in SPARKS_TABLE_PROPERTIES or _is_repeated(key)
    return key in SPARKS_OWN or (is_table and of_table)


def _is_of_table(lowered: Mapping[str, str]) -> bool:
    """Whether Spark's catalog passes the options: only in a statement that makes a table."""
    return "provider" in lowered


def _is_repeated(key: str) -> bool:
    return key.startswith(TABLE_OPTION_PREFIX)


def table_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that a table keeps: those of this source and the log's name, in lower case.

    Empty when no table is made: options of `load` must not travel with its rows.
    """
    lowered = {key.lower(): value for key, value in options.items()}
    if not _is_of_table(lowered):
        return {}
    return {
        key: value
        for key, value in lowered.items()
        if key in BY_LOWER_NAME or key in ALIASES or key in {"path", "paths"}
    }


def _chosen(kind: type[Chosen], values: Mapping[str, Any]) -> Chosen:
    return kind(**{field.name: values[field.name] for field in fields(kind)})


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
    """`load("x")` arrives as `path`, `load(["x", "y"])` as a JSON list in `paths`."""
    path, paths = lowered.get("path"), lowered.get("paths")
    if path is None and paths is not None:
        listed = _json_names(paths)
        path = ",".join(listed)
    if path is None:
        return
    key = "logs" if "," in path else "log"
    value = BY_LOWER_NAME[key].value_of(path)
    if values[key] is not None and values[key] != value:
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
        raise ConfigurationError(f"paths must be names of logs, got {paths!r}", option="paths")
    return listed


def _reject_jvm(values: Mapping[str, Any]) -> None:
    if values["engine"] == "jvm":
        raise ConfigurationError(
            'option "engine" is jvm, but the jar of the JVM engine is not on the class path. '
            'Leave the option out, or set it to "python".',
            option="engine",
        )
