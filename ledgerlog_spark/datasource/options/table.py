"""The type of an option, parsers of values, and names of options in other sources."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ledgerlog_spark.datasource.options.starting_offsets import INT64_MAX
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.protocol.log.properties import check_log_name, option_of

FAIL, CONTINUE = "fail", "continue"
"""Values of `onOverwrite`: what a stream does when rows that it reads are overwritten."""


class Use(Enum):
    """The statements in which an option has an effect.

    Other statements also accept most options, and ignore them.

    So one view can be used for reads and for writes. But each statement refuses the options that
    would change its meaning. A stream refuses options that are only for batch reads, and a write
    refuses options that select the rows of a read.
    """

    BOTH = "read and write"
    READ = "read"
    BATCH = "batch read"
    STREAM = "stream read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. A field of `SourceOptions` declares the option, its name and its default."""

    use: Use
    parse: Callable[[str], Any] = field(repr=False)  # raises ValueError with the valid values
    meaning: str
    unit: str = ""
    attribute: str = ""  # the name of the option's field in `SourceOptions`
    default: Any = None

    @property
    def name(self) -> str:
        """The option's name as users write it. Spark may pass the name in lower case."""
        return option_of(self.attribute)

    def value_of(self, text: str) -> Any:
        """Parse the text that the user gave."""
        try:
            return self.parse(text)
        except ValueError as error:
            raise ConfigurationError(
                f'option "{self.name}" must be {error}, got {text!r}', option=self.name, got=text
            ) from None


def text(value: str) -> str:
    """Parse a text that is not empty."""
    if not value:
        raise ValueError("a text that is not empty")
    return value


def any_text(value: str) -> str:
    """Accept any text, also an empty text."""
    return value


def log_name(value: str) -> str:
    """Parse the name of a log."""
    try:
        return check_log_name(value)
    except ConfigurationError:
        raise ValueError(
            "a log's name: 1 to 200 letters, digits, dots, underscores or dashes"
        ) from None


def log_names(value: str) -> tuple[str, ...]:
    """Parse names of logs, separated by commas. Duplicates are dropped."""
    return tuple(dict.fromkeys(log_name(name.strip()) for name in value.split(",")))


def pattern(value: str) -> str:
    """Parse a regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return text(value)


def names(value: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    parts = tuple(part.strip() for part in value.split(","))
    if not all(parts):
        raise ValueError("names separated by commas")
    return parts


def boolean(value: str) -> bool:
    """Parse `true` or `false`. The case of the letters is ignored."""
    lowered = value.strip().lower()
    if lowered not in {"true", "false"}:
        raise ValueError("true or false")
    return lowered == "true"


def choice(*values: str) -> Callable[[str], str]:
    """Return a parser that accepts the given values. The case of the letters is ignored."""

    def parse(value: str) -> str:
        for known in values:
            if value.strip().lower() == known.lower():
                return known
        raise ValueError(f"one of {', '.join(values)}")

    return parse


def whole_number(least: int = 0, most: int = INT64_MAX) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`, both inclusive."""

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
    """Return a parser of sizes in bytes: a whole number, alone or followed by k, m or g.

    The size must be from `least` to `most`, both inclusive.
    """
    units = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

    def parse(value: str) -> int:
        match = re.fullmatch(r"(\d{1,18})\s*([kmg]?)b?", value.strip().lower())
        size = int(match[1]) * units[match[2]] if match else -1
        if not least <= size <= most:
            raise ValueError(f"bytes from {least} to {most}, such as 1048576, 64m or 1g")
        return size

    return parse


SELECTS_ROWS = frozenset(
    {"logs", "log_pattern", "ledger_id", "columns", "starting_offsets", "ending_offsets",
     "starting_timestamp", "ending_timestamp", "version_as_of", "timestamp_as_of",
     "include_metadata"}
)  # fmt: skip
"""Fields of `SourceOptions` for the options that select the logs, rows and columns of a read."""

ALIASES = {
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "minoffsetspertrigger": "minRowsPerTrigger",
}
"""Other accepted names of options, in lower case. In these names, the word "offsets" means rows."""

SPARKS_OWN = frozenset({"path", "paths", "checkpointlocation", "queryname"})
"""Keys that Spark itself adds or reads. The value of `path` is the name of a log."""

SPARKS_TABLE_PROPERTIES = frozenset(
    {"collation", "comment", "external", "is_managed_location", "location", "owner", "provider",
     "table_type"}
)  # fmt: skip
"""Keys that Spark's catalog adds to the options of a table."""

TABLE_OPTION_PREFIX = "option."
"""Prefix of the names with which Spark's catalog repeats the options of a table."""

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
"""Maps an option of another source, mainly Kafka, to the option that an error message proposes."""
