"""Every option of `format("ledger")`: name, type, unit, default, who reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ledgerlog_spark.datasource.options.starting_offsets import (
    ERROR,
    GO_TO_LATEST,
    INT64_MAX,
    parse_duration,
    parse_moment,
)
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.protocol.log.properties import check_log_name

FAIL, CONTINUE = "fail", "continue"
"""What a stream does when rows that it reads are overwritten."""


class Use(Enum):
    """The use of an option. Other uses accept it too, so that one view serves reads and writes.

    An option that would change their meaning is refused: a stream refuses options of batch reads
    alone, and a write refuses options that choose the rows of a read.
    """

    BOTH = "read and write"
    READ = "read"
    BATCH = "batch read"
    STREAM = "stream read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: As users spell it; Spark passes any case.
        use: What it is for.
        parse: Converts text to the value; raises ValueError with the valid values.
        default: The value when it is not given.
        unit: Unit of the value; may be empty.
        meaning: For the documentation and for error messages.
    """

    name: str
    use: Use
    parse: Callable[[str], Any] = field(repr=False)
    default: Any
    unit: str
    meaning: str

    @property
    def attribute(self) -> str:
        """Name of the field that holds the value."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    def value_of(self, text: str) -> Any:
        """The parsed value."""
        try:
            return self.parse(text)
        except ValueError as error:
            raise ConfigurationError(
                f'option "{self.name}" must be {error}, got {text!r}', option=self.name, got=text
            ) from None


def text(value: str) -> str:
    """Any text but an empty one."""
    if not value:
        raise ValueError("a text that is not empty")
    return value


def log_name(value: str) -> str:
    """A log's name."""
    try:
        return check_log_name(value)
    except ConfigurationError:
        raise ValueError(
            "a log's name: 1 to 200 letters, digits, dots, underscores or dashes"
        ) from None


def log_names(value: str) -> tuple[str, ...]:
    """Names of logs, separated by commas, without duplicates."""
    return tuple(dict.fromkeys(log_name(name.strip()) for name in value.split(",")))


def pattern(value: str) -> str:
    """A regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return text(value)


def names(value: str) -> tuple[str, ...]:
    """Names separated by commas."""
    parts = tuple(part.strip() for part in value.split(","))
    if not all(parts):
        raise ValueError("names separated by commas")
    return parts


def boolean(value: str) -> bool:
    """True or false, in any case."""
    lowered = value.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError("true or false")
    return lowered == "true"


def choice(*values: str) -> Callable[[str], str]:
    """One of `values`, in any case."""

    def parse(value: str) -> str:
        for known in values:
            if value.strip().lower() == known.lower():
                return known
        raise ValueError(f"one of {', '.join(values)}")

    return parse


def whole_number(least: int = 0, most: int = INT64_MAX) -> Callable[[str], int]:
    """A whole number, both limits inclusive."""

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return number

    return parse


def size_bytes(least: int, most: int = INT64_MAX) -> Callable[[str], int]:
    """Bytes: a whole number, alone or followed by k, m or g; both limits inclusive."""
    units = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

    def parse(value: str) -> int:
        match = re.fullmatch(r"(\d{1,18})\s*([kmg]?)b?", value.strip().lower())
        size = int(match[1]) * units[match[2]] if match else -1
        if not least <= size <= most:
            raise ValueError(f"bytes from {least} to {most}, such as 1048576, 64m or 1g")
        return size

    return parse


_MS = whole_number(1)
_ON_OVERWRITE = choice(FAIL, CONTINUE)

TABLE = (
    Option("log", Use.BOTH, log_name, None, "",
           "name of the log; load(name) and save(name) also set it"),
    Option("logs", Use.READ, log_names, None, "", "names of several logs, separated by commas"),
    Option("logPattern", Use.READ, pattern, None, "",
           "regular expression; reads all logs whose whole name matches"),
    Option("ledgerId", Use.BATCH, whole_number(0), None, "",
           "id of one ledger, which is read entry by entry"),
    Option("metadataServiceUri", Use.BOTH, text, None, "", "URI of the cluster, such as zk://host:2181/ledgers"),
    Option("passwordFile", Use.BOTH, text, None, "",
           "file with the password of the ledgers, of 1 to 1,024 bytes"),
    Option("strictOptions", Use.BOTH, boolean, True, "",
           "false: an unknown option is a warning instead of an error"),
    Option("engine", Use.BOTH, choice("auto", "jvm", "python"), "auto", "",
           "the program that runs scans"),
    Option("columns", Use.READ, names, None, "", "names of the columns to read, in this order"),
    Option("startingOffsets", Use.READ, text, "earliest", "rows",
           "first row: earliest, latest (the default of streams), a number, or JSON for each log"),
    Option("endingOffsets", Use.BATCH, text, "latest", "rows",
           "offset after the last row; forms as of startingOffsets"),
    Option("startingTimestamp", Use.READ, parse_moment, None, "",
           "first row that was committed at this time or later: ms since 1970, ISO 8601 (UTC by "
           "default), or -10m"),
    Option("endingTimestamp", Use.BATCH, parse_moment, None, "",
           "only rows that were committed before this time; forms as of startingTimestamp"),
    Option("startingOffsetsByTimestampStrategy", Use.READ, choice(ERROR, GO_TO_LATEST), ERROR, "",
           "behaviour when no row is as late as startingTimestamp"),
    Option("versionAsOf", Use.BATCH, whole_number(0), None, "", "number of the version to read"),
    Option("timestampAsOf", Use.BATCH, parse_moment, None, "",
           "reads the version that was the newest at this time; forms as of startingTimestamp"),
    Option("failOnDataLoss", Use.READ, boolean, True, "", "false: skip rows that no longer exist"),
    Option("onOverwrite", Use.STREAM, _ON_OVERWRITE, FAIL, "",
           "continue: continue to read when the log is overwritten"),
    Option("maxRowsPerTrigger", Use.STREAM, whole_number(1), None, "rows",
           "maximum of a micro-batch; also as maxOffsetsPerTrigger"),
    Option("maxBytesPerTrigger", Use.STREAM, size_bytes(1), 1 << 30, "bytes",
           "approximate maximum of a micro-batch, as stored; at least one entry is read"),
    Option("minRowsPerTrigger", Use.STREAM, whole_number(1), None, "rows",
           "minimum of a micro-batch; also as minOffsetsPerTrigger"),
    Option("maxTriggerDelay", Use.STREAM, parse_duration, 900_000, "ms",
           "maximum time to wait for minRowsPerTrigger; also as 15m"),
    Option("includeMetadata", Use.READ, boolean, False, "",
           "adds the columns _log, _ledger, _entry, _offset, _append_time"),
    Option("maxBytesPerPartition", Use.READ, size_bytes(1), 128 << 20, "bytes",
           "maximum of one task"),
    Option("minPartitions", Use.READ, whole_number(1, 1_000_000), None, "", "minimum number "
           "of tasks; defaults to the number that can run concurrently, of 4 MiB or more each"),
    Option("maxRecordsPerPartition", Use.READ, whole_number(1), None, "rows",
           "maximum of one task, rounded up to whole entries"),
    Option("createIfMissing", Use.WRITE, boolean, True, "", "creates the log if it does not exist"),
    Option("ensembleSize", Use.WRITE, whole_number(1, 1024), None, "bookies",
           "bookies of a ledger, for a new log; 3 by default"),
    Option("writeQuorum", Use.WRITE, whole_number(1, 1024), None, "bookies",
           "copies of an entry, for a new log; 3 by default, or all of a smaller ensemble"),
    Option("ackQuorum", Use.WRITE, whole_number(1, 1024), None, "bookies",
           "copies before an entry is acknowledged, for a new log; 2 by default, or all of a "
           "smaller write quorum"),
    Option("digestType", Use.WRITE, choice("CRC32C", "CRC32", "HMAC", "DUMMY"), None, "",
           "digest of entries, for a new log; CRC32C by default"),
    Option("txnAppId", Use.WRITE, text, None, "", "application ID; with txnVersion it makes the "
           "write idempotent"),
    Option("txnVersion", Use.WRITE, whole_number(0), None, "",
           "number of the write; it must rise with each write of a txnAppId"),
    Option("mergeSchema", Use.WRITE, boolean, False, "", "adds new columns to the log"),
    Option("overwriteSchema", Use.WRITE, boolean, False, "",
           "an overwrite also replaces the columns of the log"),
    Option("overwriteIfChanged", Use.WRITE, boolean, False, "",
           "an overwrite also replaces commits that other jobs made meanwhile"),
    Option("retentionMs", Use.WRITE, _MS, None, "ms",
           "maximum age of rows, for a new log; no limit by default"),
    Option("retentionBytes", Use.WRITE, size_bytes(1), None, "bytes",
           "maximum size, for a new log; no limit by default"),
    Option("versionRetentionMs", Use.WRITE, _MS, None, "ms",
           "time to keep old versions, for a new log; 7 days by default"),
    Option("deletedRetentionMs", Use.WRITE, _MS, None, "ms",
           "time to keep ledgers that no version needs, for a new log; 24 hours by default"),
    Option("stagingTtlMs", Use.WRITE, _MS, None, "ms",
           "time to keep uncommitted ledgers, for a new log; 7 days by default"),
    Option("txnRetentionMs", Use.WRITE, _MS, None, "ms",
           "time to remember application IDs, for a new log; 30 days by default"),
    Option("targetEntryBytes", Use.WRITE, size_bytes(4096, 4 << 20), 1 << 20, "bytes",
           "approximate size of an entry, encoded"),
    Option("compression", Use.WRITE, choice("zstd", "lz4", "none"), "zstd", "",
           "compression of entries"),
)  # fmt: skip

BY_LOWER_NAME = {option.name.lower(): option for option in TABLE}

SELECTS_ROWS = frozenset(
    {"logs", "log_pattern", "ledger_id", "columns", "starting_offsets", "ending_offsets",
     "starting_timestamp", "ending_timestamp", "version_as_of", "timestamp_as_of",
     "include_metadata"}
)  # fmt: skip
"""Attributes of options that choose which rows and columns of which logs a read shows."""

ALIASES = {
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "minoffsetspertrigger": "minRowsPerTrigger",
}
"""Other names of options, in lower case: offsets are rows."""

SPARKS_OWN = frozenset({"path", "paths", "checkpointlocation", "queryname"})
"""Keys that Spark itself adds or reads; `path` names a log."""

SPARKS_TABLE_PROPERTIES = frozenset(
    {"collation", "comment", "external", "is_managed_location", "location", "owner", "provider",
     "table_type"}
)  # fmt: skip
"""What Spark's catalog adds to the options of a table."""

TABLE_OPTION_PREFIX = "option."
"""Spark's catalog repeats a table's options with this prefix."""

NEAREST = {
    "assign": "log",
    "endpoint": "metadataServiceUri",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "host": "metadataServiceUri",
    "includeheaders": "includeMetadata",
    "kafka.acks": "ackQuorum",
    "kafka.bootstrap.servers": "metadataServiceUri",
    "bootstrap.servers": "metadataServiceUri",
    "ledger": "ledgerId",
    "maxbytespertask": "maxBytesPerPartition",
    "maxfilesize": "targetEntryBytes",
    "maxfilespertrigger": "maxRowsPerTrigger",
    "maxpartitionbytes": "maxBytesPerPartition",
    "replication": "writeQuorum",
    "replicationfactor": "writeQuorum",
    "servers": "metadataServiceUri",
    "service.url": "metadataServiceUri",
    "ignorechanges": "onOverwrite",
    "skipchangecommits": "onOverwrite",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "startingtime": "startingTimestamp",
    "endingtime": "endingTimestamp",
    "startingversion": "startingOffsets",
    "subscribe": "log",
    "subscribepattern": "logPattern",
    "table": "log",
    "topic": "log",
    "topics": "logs",
    "topicspattern": "logPattern",
    "url": "metadataServiceUri",
    "zookeeper": "metadataServiceUri",
    "zookeeper.connect": "metadataServiceUri",
}
"""Names of the same options in other sources, first of all Kafka's."""
