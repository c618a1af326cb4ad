"""Named places in the code where a test can kill or stop a process, for tests of crashes.

`reach(name)` is called between two steps that a crash may separate. `reach` does nothing unless the
environment variable `LEDGERLOG_FAILPOINT` contains this name when the process starts:

- `commit.before_multi`: the process gets SIGKILL when it first calls `reach` with this name;
- `commit.before_multi:3`: the process gets SIGKILL at its third such call;
- `commit.before_multi:3@FILE`: from the third such call on, the process tries to remove `FILE`, and
  gets SIGKILL if it removed the file. Therefore only one of many Python workers is killed, and its
  replacement continues;
- `stop:commit.before_multi`: the process gets SIGSTOP instead of SIGKILL. After a SIGCONT, the
  process continues.

The variable may contain several independent failpoints, separated by commas.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from ledgerlog_spark.errors import ConfigurationError

VARIABLE = "LEDGERLOG_FAILPOINT"

NAMES = {
    "run.taken_over": "a task took over the producer, but has not received the answer",
    "ledger.registered": "a task's ledger has its metadata and its registration, but no entry",
    "range.rows_sent": "a task has sent an entry that is perhaps not acknowledged",
    "range.acknowledged": "a task's range is on its ack quorums, but was not reported to Spark",
    "ledger.closed": "a ledger was closed, but its ranges are not listed",
    "commit.begun": "the driver has every range, but has read nothing",
    "commit.pages_written": "the pages that the new head will name are written",
    "commit.before_multi": "the commit's transaction is about to be sent",
    "commit.after_multi": "the commit's transaction succeeded, but was not reported to Spark",
    "sweep.unlisted": "the head no longer lists some items, and their ledgers are marked",
    "sweep.deregistered": "registrations have ended, but nothing was deleted",
    "sweep.pages_touched": "no commit can name these pages any more, but they still exist",
    "sweep.ledger_sealed": "an unlisted ledger is sealed, but not deleted",
    "sweep.ledger_deleted": "a ledger is deleted, but its mark still exists",
}
"""The names of the failpoints. Each has a description of the state when a process reaches it."""


@dataclass(slots=True)
class _Armed:
    """A failpoint of this process, and the number of calls of `reach` until it takes effect."""

    name: str
    left: int
    only_with: Path | None
    signal: signal.Signals


def reach(name: str) -> None:
    """Kill or stop the process if the environment names this failpoint; otherwise do nothing.

    In a stopped process, the function returns after a SIGCONT.
    """
    armed = _armed.get(name)
    if armed is None:
        return
    armed.left -= 1
    if armed.left > 0:
        return
    if armed.only_with is not None:
        try:
            armed.only_with.unlink()
        except FileNotFoundError:
            return
    elif armed.left < 0:
        return
    os.kill(os.getpid(), armed.signal)


def parse(text: str) -> dict[str, _Armed]:
    """Return the failpoints in `text` by name; an empty dict if `text` is empty."""
    armed = (_parse_one(one) for one in text.split(",") if text)
    return {one.name: one for one in armed}


def _parse_one(text: str) -> _Armed:
    match = re.fullmatch(r"(stop:)?([a-z_.]+)(?::([1-9]\d*))?(?:@(.+))?", text)
    if match is None or match[2] not in NAMES:
        raise ConfigurationError(
            f"{VARIABLE} must be NAME, NAME:COUNT or NAME:COUNT@FILE, optionally after 'stop:', "
            f"with one of the names {', '.join(NAMES)}; got {text!r}",
            key=VARIABLE,
            got=text,
        )
    return _Armed(
        name=match[2],
        left=int(match[3] or 1),
        only_with=Path(match[4]) if match[4] else None,
        signal=signal.SIGSTOP if match[1] else signal.SIGKILL,
    )


_armed = parse(os.environ.get(VARIABLE, ""))
