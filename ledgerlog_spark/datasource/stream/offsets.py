"""A stream's offsets as Spark keeps them: `{log: {"id": log id, "offset": next row}}`.

The offset survives merging, because rows are never renumbered; the id tells a log that was deleted
and made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class LogOffset:
    """A place in one log.

    Attributes:
        log_id: Of the log; another log of the same name has another.
        offset: The next row to read.
    """

    log_id: str
    offset: int


def offsets_of(value: Any) -> dict[str, LogOffset]:
    """The offsets in what Spark read from a checkpoint, by log name.

    Raises:
        ConfigurationError: Something else wrote the checkpoint.
    """
    try:
        return {name: _offset_of(position) for name, position in value.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigurationError(
            f'the checkpoint has the offset {value!r}, and format("ledger") writes offsets such as '
            f'{{"flights": {{"id": "...", "offset": 1000}}}}: it is the checkpoint of another '
            f"source. Give this query a checkpointLocation of its own.",
            option="checkpointLocation",
        ) from None


def json_of(offsets: Mapping[str, LogOffset]) -> dict[str, Any]:
    """The offsets as Spark keeps them: equal offsets make equal text, which Spark compares."""
    return {
        name: {"id": offsets[name].log_id, "offset": offsets[name].offset}
        for name in sorted(offsets)
    }


def _offset_of(position: Any) -> LogOffset:
    log_id, offset = position["id"], position["offset"]
    if type(log_id) is not str or type(offset) is not int or offset < 0:
        raise ValueError(position)
    return LogOffset(log_id, offset)
