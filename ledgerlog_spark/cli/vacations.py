"""`ledgerlog bookies drain|decommission|recover`: takes a bookie out of service.

The commands only write and watch the node of the vacation. The auditor does the work. So Ctrl-C
ends the display of the progress, but not the vacation (AUTORECOVERY.md#Y1).
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn

from ledgerlog_spark.autorecovery.vacate.runner import UNREADABLE
from ledgerlog_spark.autorecovery.vacate.survey import holdings, surroundings
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, Yes, confirm, metadata
from ledgerlog_spark.cli.output import AsJson, console, counted, print_fields, print_json
from ledgerlog_spark.errors import (
    ConfigurationError,
    LocalProtocolError,
    MetadataUnavailableError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.registration import checked_bookie_id
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.protocol.autorecovery.vacate.refusals import (
    Holdings,
    Surroundings,
    refusals,
)
from ledgerlog_spark.protocol.autorecovery.vacate.speed import Speed, VacatingRate
from ledgerlog_spark.wire.repair_notes import Vacation, VacationKind, VacationPhase

POLL_SECONDS = 2.0
LINE_SECONDS = 10.0
"""Minimum time between two lines of progress if the output is not a terminal."""

BLOCKED_SHOWN_MAX = 5

app = typer.Typer()

BookieId = Annotated[str, typer.Argument(help="Bookie ID. `bookies list` shows all.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Only show the ledgers and bytes to move, and reasons for a refusal."
    ),
]
Cancel = Annotated[bool, typer.Option("--cancel", help="End the vacation of the bookie.")]


@dataclass(frozen=True, slots=True)
class _Wish:
    """A command, and the arguments with which it was called."""

    kind: VacationKind
    bookie_id: str
    dry_run: bool
    cancel: bool
    yes: bool
    uri: str
    as_json: bool

    def run(self) -> None:
        """Run the command."""
        checked_bookie_id(self.bookie_id)
        if self.dry_run and self.cancel:
            raise ConfigurationError("--dry-run and --cancel exclude each other: pass one of them")
        if self.cancel:
            asyncio.run(_cancel(self))
            return
        held = asyncio.run(_look(self))
        if self.dry_run:
            return
        if held is not None and not self.yes:
            # The prompt is outside an event loop, so that Ctrl-C ends the prompt.
            confirm(f"{self.kind.value} bookie {self.bookie_id}", otherwise="nothing was changed")
        outcome = "may have begun"
        with contextlib.suppress(KeyboardInterrupt):
            if held is not None:
                asyncio.run(_begin(self, held))
            outcome = "continues"
            asyncio.run(_show(self))
            return
        console.print(
            f"the vacation of bookie {self.bookie_id} {outcome}: run the same command to see its "
            "progress, or pass --cancel to end it",
            soft_wrap=True,
        )


@app.command("drain", epilog="Example: ledgerlog bookies drain bookie-0 --dry-run")
def drain(
    bookie_id: BookieId,
    dry_run: DryRun = False,
    cancel: Cancel = False,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Move all entries of a bookie to other bookies. The bookie becomes read-only.

    `--cancel` makes the bookie writable again, even after all entries have
    moved. Ctrl-C ends only the display of the progress.
    """
    _Wish(VacationKind.DRAIN, bookie_id, dry_run, cancel, yes, uri, as_json).run()


@app.command("decommission", epilog="Example: ledgerlog bookies decommission bookie-0 --yes")
def decommission(
    bookie_id: BookieId,
    dry_run: DryRun = False,
    cancel: Cancel = False,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Move all entries of a bookie to other bookies, and delete its cookie at the end.

    After that, the bookie does not start again. Its ID cannot be used again.
    """
    _Wish(VacationKind.DECOMMISSION, bookie_id, dry_run, cancel, yes, uri, as_json).run()


@app.command("recover", epilog="Example: ledgerlog bookies recover bookie-0 --dry-run")
def recover(
    bookie_id: BookieId,
    dry_run: DryRun = False,
    cancel: Cancel = False,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Begin at once to replace the copies of a bookie that is down.

    Without this command, the auditor begins after a delay. The entries are
    copied from the other bookies that have them. If the bookie starts again,
    the recovery ends.
    """
    _Wish(VacationKind.RECOVER, bookie_id, dry_run, cancel, yes, uri, as_json).run()


async def _look(wish: _Wish) -> Holdings | None:
    """Print and return the numbers of the bookie's ledgers and bytes.

    The result is None if the vacation exists already.
    """
    async with metadata(wish.uri) as stores:
        found = await stores.vacations.load(wish.bookie_id)
        if found is None or wish.dry_run:
            return await _survey(stores, wish)
    if found.value.kind is not wish.kind:
        _require_startable(wish, found.value)
        raise LocalProtocolError(
            f"bookie {wish.bookie_id} has a vacation of kind {found.value.kind.value}: to end it, "
            "run the command with the name of this kind and --cancel",
            bookie_id=wish.bookie_id,
        )
    return None


async def _begin(wish: _Wish, held: Holdings) -> None:
    """Write the node of a new vacation."""
    async with metadata(wish.uri) as stores:
        # While the command waited for the confirmation, another vacation may have begun.
        _refuse(wish, _reasons(wish, held, await surroundings(stores, wish.bookie_id)))
        await _write(stores, wish)


async def _show(wish: _Wish) -> None:
    """Show the progress until the vacation ends."""
    async with metadata(wish.uri) as stores:
        await _follow(stores, wish)


async def _survey(stores: MetadataStores, wish: _Wish) -> Holdings:
    """Print and return the numbers of the bookie's ledgers and bytes, or refuse the vacation."""
    held, around = await asyncio.gather(
        holdings(stores, wish.bookie_id), surroundings(stores, wish.bookie_id)
    )
    reasons = _reasons(wish, held, around)
    if wish.dry_run and wish.as_json:
        print_json(_summary(held, around, reasons))
    elif not wish.as_json:
        shown = _summary(held, around, reasons)
        del shown["refusals"]  # the error contains the reasons
        print_fields(f"{wish.kind.value} of bookie {wish.bookie_id}", shown)
    _refuse(wish, reasons)
    return held


def _reasons(wish: _Wish, held: Holdings, around: Surroundings) -> list[str]:
    return refusals(held, around, is_recovery=wish.kind is VacationKind.RECOVER)


def _refuse(wish: _Wish, reasons: list[str]) -> None:
    if reasons:
        raise LocalProtocolError(
            f"bookie {wish.bookie_id} is not taken out of service: {'; '.join(reasons)}",
            bookie_id=wish.bookie_id,
            refusals=tuple(reasons),
        )


def _summary(held: Holdings, around: Surroundings, reasons: list[str]) -> dict[str, Any]:
    return {
        "bookie_id": held.bookie_id,
        "ledgers": held.ledgers,
        "open_ledgers": held.open_ledgers,
        "bytes": held.size_bytes,
        "targets": len(around.targets(held.bookie_id)),
        "free_bytes_elsewhere": around.free_elsewhere(held.bookie_id),
        "refusals": reasons,
    }


async def _write(stores: MetadataStores, wish: _Wish) -> None:
    begun_by = f"{getpass.getuser()}@{socket.gethostname()}"
    begun_ms = time.time_ns() // 1_000_000
    vacation = Vacation(wish.kind, VacationPhase.DRAINING, begun_by, begun_ms)
    await stores.vacations.write(wish.bookie_id, vacation, None)


async def _cancel(wish: _Wish) -> None:
    async with metadata(wish.uri) as stores:
        found = await stores.vacations.load(wish.bookie_id)
        if found is None or found.value.kind is not wish.kind:
            raise LocalProtocolError(
                f"bookie {wish.bookie_id} has no vacation of kind {wish.kind.value}; nothing was "
                "changed",
                bookie_id=wish.bookie_id,
            )
        _require_startable(wish, found.value)
        if not await stores.vacations.delete(wish.bookie_id, found.version):
            raise MetadataVersionError(
                f"the vacation of bookie {wish.bookie_id} has just changed; nothing was changed, "
                "so try again",
                bookie_id=wish.bookie_id,
            )
    text = f"the vacation of bookie {wish.bookie_id} is cancelled; entries that were moved stay"
    if wish.as_json:
        print_json({"bookie_id": wish.bookie_id, "is_cancelled": True})
    else:
        console.print(text, soft_wrap=True)


def _require_startable(wish: _Wish, vacation: Vacation) -> None:
    if vacation.forbids_starts:
        raise LocalProtocolError(
            f"bookie {wish.bookie_id} is decommissioned already, and its cookie is deleted; "
            "nothing was changed",
            bookie_id=wish.bookie_id,
        )


async def _states(stores: MetadataStores, wish: _Wish) -> AsyncIterator[Vacation]:
    """Yield the vacation after each change and at least every two seconds, until it is over."""
    changed = asyncio.Event()
    cancel = stores.vacations.watch(wish.bookie_id, changed.set)
    try:
        while True:
            changed.clear()
            found = await stores.vacations.load(wish.bookie_id)
            if found is None:
                raise LocalProtocolError(
                    f"the vacation of bookie {wish.bookie_id} was cancelled",
                    bookie_id=wish.bookie_id,
                )
            yield found.value
            if found.value.is_over:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await changed.wait()
    finally:
        cancel()


async def _follow(stores: MetadataStores, wish: _Wish) -> None:
    speed, vacation, hindrance = Speed(), None, ""
    show = _Lines() if wish.as_json or not sys.stdout.isatty() else _Bar(wish)
    try:
        with show:
            async for vacation in _states(stores, wish):
                before, hindrance = hindrance, await _hindrance(stores)
                if hindrance not in ("", before) and not vacation.is_over:
                    typer.echo(hindrance, err=True)
                left = max(0, vacation.ledgers_left), max(0, vacation.bytes_left)
                show.update(vacation, speed.note(asyncio.get_running_loop().time(), *left))
    except MetadataUnavailableError:
        typer.echo(
            f"the vacation of bookie {wish.bookie_id} continues: run the same command when "
            "ZooKeeper answers again, to see its progress",
            err=True,
        )
        raise
    assert vacation is not None, "there is at least one state"
    if wish.as_json:
        print_json({"bookie_id": wish.bookie_id, **asdict(vacation)})
        return
    console.print(_ended(wish, vacation), soft_wrap=True)


async def _hindrance(stores: MetadataStores) -> str:
    """Return the reason why the whole cluster moves no entries.

    The result is an empty text if there is no such reason.
    """
    if not await stores.recovery_switch.is_enabled():
        return "auto-recovery is disabled, so nothing is moved: run `ledgerlog autorecovery enable`"
    if await stores.auditor_election.current() is None:
        return "no auditor runs, so nothing is moved: start `ledgerlog autorecovery run`"
    return ""


def _ended(wish: _Wish, vacation: Vacation) -> str:
    moved = counted(max(0, vacation.ledgers_total), "ledger", "ledgers")
    after = {
        VacationKind.DRAIN: "it stays read-only until `--cancel`",
        VacationKind.DECOMMISSION: "its cookie is deleted, so stop it, and format its directories",
        VacationKind.RECOVER: "all entries have their copies on other bookies",
    }[wish.kind]
    return f"no ledger names bookie {wish.bookie_id} any more ({moved} moved): {after}"


def progress_text(vacation: Vacation, rate: VacatingRate) -> str:
    """Return one line of text about the progress of a vacation."""
    if vacation.walks == 0:
        return f"{vacation.phase.value}: the ledgers are counted"
    text = (
        f"{vacation.phase.value}: {vacation.ledgers_left:,} of {vacation.ledgers_total:,} ledgers "
        f"and {vacation.bytes_left:,} of {vacation.bytes_total:,} bytes are left"
    )
    unreadable = [one.ledger_id for one in vacation.blocked if one.reason == UNREADABLE]
    waiting = [one.ledger_id for one in vacation.blocked if one.reason != UNREADABLE]
    if waiting:
        count = vacation.blocked_count - len(unreadable)
        text += (
            f"; {counted(count, 'open ledger waits', 'open ledgers wait')} for a writer that "
            f"replaces the bookie ({_some(waiting)}): if the writer has ended, run "
            "`ledgerlog ledgers seal`, and a worker moves them within five minutes"
        )
    if unreadable:
        text += (
            f"; the metadata of ledgers {_some(unreadable)} cannot be read and may name the "
            "bookie, so this does not end: run `ledgerlog ledgers check`"
        )
    if not vacation.ledgers_left and not vacation.is_over:
        return f"{text}; waiting about a minute, until no client has an old list of the bookies"
    if rate.left_s is None:
        return text
    return f"{text}, {rate.bytes_per_s / 1e6:,.1f} MB/s, about {_duration(rate.left_s)} to go"


def _some(ledger_ids: list[int]) -> str:
    more = ", ..." if len(ledger_ids) > BLOCKED_SHOWN_MAX else ""
    return ", ".join(map(str, ledger_ids[:BLOCKED_SHOWN_MAX])) + more


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes}:{rest:02} min"


class _Lines:
    """Shows the progress as lines, if the output is a file or a pipe."""

    def __init__(self) -> None:
        self._printed_s = -LINE_SECONDS
        self._last = ""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, vacation: Vacation, rate: VacatingRate) -> None:
        """Print the line about the progress if it changed, at most every ten seconds."""
        text, now_s = progress_text(vacation, rate), time.monotonic()
        if text != self._last and now_s - self._printed_s >= LINE_SECONDS:
            self._last, self._printed_s = text, now_s
            typer.echo(text, err=True)


class _Bar:
    """Shows the progress as a bar, if the output is a terminal."""

    def __init__(self, wish: _Wish) -> None:
        bar, text = BarColumn(bar_width=30), TextColumn("{task.fields[text]}")
        self._progress = Progress(bar, text, console=console)
        self._task = self._progress.add_task("", total=None, text=f"bookie {wish.bookie_id}")

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, vacation: Vacation, rate: VacatingRate) -> None:
        """Draw the bar for this state of the vacation."""
        total = vacation.bytes_total or vacation.ledgers_total
        left = vacation.bytes_left if vacation.bytes_total else vacation.ledgers_left
        if vacation.walks:
            done = total if vacation.is_over else max(0, total - left)
            self._progress.update(self._task, total=max(1, total), completed=done)
        self._progress.update(self._task, text=progress_text(vacation, rate))
