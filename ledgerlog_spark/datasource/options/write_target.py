"""Which log a write goes to: the one that the statement itself names, by its path.

Spark 4.3 passes to a Python source that writes: the options of the statement, and the schema of
its rows. It passes neither the table's name nor its options. So an `INSERT` into a table of the
catalog cannot know its log, and `CREATE TABLE .. AS SELECT` and `saveAsTable` make a table that
could not be read. All of them are refused before anything is written. The option `log` is not
enough for a write: `saveAsTable` and `writeTo(..).create()` pass it exactly as `save()` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.datasource.options.table import SELECTS_ROWS, TABLE
from ledgerlog_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_VIEW = (
    "In SQL, write to a view: CREATE TEMPORARY VIEW v USING ledger OPTIONS (path 'name'), then "
    "INSERT {verb} v"
)


def check_target(options: Mapping[str, str], *, overwrite: bool, streams: bool) -> None:
    """Returns when the statement names its log by a path, and all of the log.

    Args:
        options: As Spark passes them.
        overwrite: Whether the write replaces the rows.
        streams: Whether a streaming query writes.

    Raises:
        ConfigurationError: It names none, or a part of a log. Nothing was written; the message
            contains a statement that works.
    """
    given = {key.lower() for key in options}
    if "path" not in given:
        raise ConfigurationError(_without_path(options, overwrite=overwrite, streams=streams))
    partial = [
        option.name
        for option in TABLE
        if option.attribute in SELECTS_ROWS and option.name.lower() in given
    ]
    if partial:
        names = ", ".join(f'"{name}"' for name in partial)
        raise ConfigurationError(
            f"nothing was written: {names} is an option of reads only. "
            f"{_instead(overwrite=overwrite, streams=streams)}",
            option=partial[0],
        )


def _without_path(options: Mapping[str, str], *, overwrite: bool, streams: bool) -> str:
    named = any(key.lower() == "log" for key in options)
    reason = (
        'a write names its log by a path, and not by the option "log": Spark passes the same '
        "options for saveAsTable and writeTo(..).create(), whose table could not be read"
        if named
        else "Spark 4.3 does not pass a table's name or options to a Python source that writes, "
        "so the log has no name"
    )
    return f"nothing was written: {reason}. {_instead(overwrite=overwrite, streams=streams)}"


def _instead(*, overwrite: bool, streams: bool) -> str:
    if streams:
        return (
            'Write df.writeStream.format("ledger").option("checkpointLocation", ..).start("name")'
        )
    mode = "overwrite" if overwrite else "append"
    verb = "OVERWRITE" if overwrite else "INTO"
    return (
        f'Write df.write.format("ledger").mode("{mode}").save("name"). {_VIEW.format(verb=verb)}. '
        "For a table that SQL reads: CREATE TABLE t USING ledger OPTIONS (log 'name')"
    )
