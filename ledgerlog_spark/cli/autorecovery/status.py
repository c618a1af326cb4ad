"""`ledgerlog autorecovery status|queue`: what auto-recovery does, and which ledgers wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.autorecovery import switch
from ledgerlog_spark.cli.autorecovery.switch import with_stores
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, group
from ledgerlog_spark.cli.output import AsJson, console, print_fields, print_json, print_table
from ledgerlog_spark.errors import ConfigurationError, MetadataFormatError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.tools.recovery_status import (
    QUEUES,
    LedgerStatus,
    QueueLength,
    RecoveryStatus,
    ledger_status,
    recovery_status,
)
from ledgerlog_spark.wire.repair_notes import WHOLE_LEDGER, WorkerReport

LIMIT = 1_000

app = group("Show and control auto-recovery.", "ledgerlog autorecovery status")
app.add_typer(switch.app)


@app.command("status", epilog="Example: ledgerlog autorecovery status --ledger 17")
def status(
    ledger: Annotated[
        int | None,
        typer.Option(metavar="LEDGER_ID", help="Show why this ledger is not healed.", min=0),
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Show whether auto-recovery is enabled, its auditor, its workers and its queues."""
    if ledger is not None:
        found = with_stores(uri, lambda stores: ledger_status(stores, ledger))
        if as_json:
            print_json(_ledger_fields(found))
        else:
            _print_ledger(found)
        return
    state = with_stores(uri, recovery_status)
    if as_json:
        print_json(_fields(state))
    else:
        _print(uri, state)


def _fields(state: RecoveryStatus) -> dict[str, Any]:
    return {
        "is_enabled": state.is_enabled,
        "delay_s": state.delay_s,
        "auditor": state.auditor,
        "queues": {name: asdict(length) for name, length in state.queues.items()},
        "workers": {name: asdict(report) for name, report in state.workers.items()},
        "vacations": {
            name: {**asdict(each), "kind": each.kind.value, "phase": each.phase.value}
            for name, each in state.vacations.items()
        },
    }


def _print(uri: str, state: RecoveryStatus) -> None:
    waits = None if state.delay_s is None else f"{state.delay_s:,} s for one lost bookie"
    fields: dict[str, object] = {
        "enabled": state.is_enabled,
        "auditor": state.auditor or "none runs; start `ledgerlog autorecovery run`",
        "delay": waits,
        **{f"ledgers in {name}": _length(length) for name, length in state.queues.items()},
    }
    print_fields(f"auto-recovery of {uri}", fields)
    if state.workers:
        columns = (
            "worker",
            "state",
            "ledgers now",
            "healed",
            "entries copied",
            "MB copied",
            "MB/s",
        )
        workers = [_worker(name, report) for name, report in sorted(state.workers.items())]
        print_table("workers", columns, workers)
    if state.vacations:
        leaving = [
            (name, each.kind.value, each.phase.value, _left(each.ledgers_left), each.detail)
            for name, each in sorted(state.vacations.items())
        ]
        heads = ("bookie", "command", "phase", "ledgers left", "waits for")
        print_table("bookies that leave", heads, leaving)


def _length(length: QueueLength) -> str:
    return f"{length.ledgers:,}" if length.is_whole else f"more than {length.ledgers:,}"


def _left(count: int) -> int | None:
    return None if count < 0 else count


def _worker(name: str, report: WorkerReport) -> tuple[object, ...]:
    ledgers = ", ".join(str(task.ledger_id) for task in report.tasks) or None
    copied, rate = report.bytes_copied / 1e6, report.bytes_per_second / 1e6
    return (
        name, report.state, ledgers, report.ledgers_healed, report.entries_copied,
        f"{copied:,.1f}", f"{rate:,.1f}",
    )  # fmt: skip


def _ledger_fields(found: LedgerStatus) -> dict[str, Any]:
    return {
        "ledger_id": found.ledger_id,
        "state": None if found.metadata is None else found.metadata.state.name,
        "is_queued": found.is_queued,
        "reasons": found.reasons(),
        "lost_bookies": list(found.lost_bookies),
        "marked_ms": found.marked_ms,
        "holes": [asdict(each) for each in found.holes],
        "moves": [asdict(each) for each in found.moves],
        "unreadable": [asdict(each) for each in found.unreadable],
        "accepted_losses": [] if found.losses is None else asdict(found.losses)["acceptances"],
        "attempts": None if found.attempts is None else asdict(found.attempts),
        "lock_holder": found.lock_holder,
        "worker": found.worker,
    }


def _print_ledger(found: LedgerStatus) -> None:
    losses = () if found.losses is None else found.losses.acceptances
    accepted = [f"{each.accepted_by}: {each.reason}" for each in losses]
    fields: dict[str, object] = {
        "state": None if found.metadata is None else found.metadata.state.name,
        "lost bookies": _joined(found.lost_bookies),
        "marked at": None if found.marked_ms is None else _time(found.marked_ms),
        "holes on": _joined([_place(each.bookie_id, each.first_entry_id) for each in found.holes]),
        "moves from": _joined(
            [_place(each.bookie_id, each.first_entry_id) for each in found.moves]
        ),
        "unreadable entries": _joined(
            [f"{each.first_entry_id} to {each.last_entry_id}" for each in found.unreadable]
        ),
        "losses accepted by": _joined(accepted),
        "handled by": found.lock_holder,
        "worker": found.worker,
    }
    print_fields(f"auto-recovery of ledger {found.ledger_id}", fields)
    for reason in found.reasons():
        console.print(reason, soft_wrap=True)


def _joined(texts: Sequence[str]) -> str | None:
    return ", ".join(texts) or None


def _place(bookie_id: str, first_entry_id: int) -> str:
    name = bookie_id or "all members"
    return name if first_entry_id == WHOLE_LEDGER else f"{name} (from entry {first_entry_id})"


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class _Queued:
    """One ledger of one queue. If the ledger's node cannot be read, `problem` is the reason."""

    ledger_id: int
    queue: str
    bookies: Sequence[str]
    problem: str = ""


@app.command("queue", epilog="Example: ledgerlog autorecovery queue --kind marks")
def queue(
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="marks (lost bookies), holes, moves or unreadable; default: all queues.",
        ),
    ] = None,
    bookie_id: Annotated[
        str | None, typer.Option(metavar="ID", help="List only ledgers that wait for this bookie.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option(metavar="N", help="Maximum number of ledgers to list from each queue.", min=1),
    ] = LIMIT,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """List the ledgers that wait for auto-recovery.

    `marks` contains ledgers with lost bookies. The workers of Apache
    BookKeeper also use this queue. `holes` contains ledgers of which running
    bookies lack copies. `moves` contains ledgers with copies that must move.
    `unreadable` contains ledgers with entries that no bookie returned.
    """
    if kind is not None and kind not in QUEUES:
        raise ConfigurationError(f"--kind {kind!r} is not a queue: pass {', '.join(QUEUES)}")
    kinds = QUEUES if kind is None else (kind,)

    async def work(stores: MetadataStores) -> list[_Queued]:
        return [each for name in kinds for each in await _queued(stores, name, bookie_id, limit)]

    found = with_stores(uri, work)
    if as_json:
        print_json([asdict(each) for each in found])
        return
    rows = [
        (str(each.ledger_id), each.queue, each.problem or _joined(each.bookies)) for each in found
    ]
    print_table(f"ledgers that wait, of {uri}", ("ledger", "queue", "bookies"), rows)


async def _queued(
    stores: MetadataStores, name: str, bookie_id: str | None, limit: int
) -> list[_Queued]:
    found: list[_Queued] = []
    async for ledger_id in getattr(stores, name).walk():
        try:
            bookies = await _bookies(stores, name, ledger_id)
        except MetadataFormatError as error:
            found.append(_Queued(ledger_id, name, (), error.message))
        else:
            if bookies is not None and (bookie_id is None or bookie_id in bookies):
                found.append(_Queued(ledger_id, name, bookies))
        if len(found) >= limit:
            break
    return found


async def _bookies(stores: MetadataStores, name: str, ledger_id: int) -> Sequence[str] | None:
    """Return the bookies for which a ledger waits.

    The result is None if the ledger has just left the queue.
    """
    if name == "marks":
        mark = await stores.marks.load(ledger_id)
        return None if mark is None else mark.replicas
    if name == "holes":
        holes = await stores.holes.load(ledger_id)
        return None if holes is None else sorted({each.bookie_id for each in holes.value.holes})
    if name == "moves":
        moves = await stores.moves.load(ledger_id)
        return None if moves is None else sorted({each.bookie_id for each in moves.value.moves})
    unreadable = await stores.unreadable.load(ledger_id)
    if unreadable is None:
        return None
    return sorted({name for each in unreadable.value.ranges for name, _ in each.answers})
