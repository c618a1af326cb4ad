"""`ledgerlog bookie limbo list|accept|raise`: ledgers that may have lost records on a bookie."""

from __future__ import annotations

import asyncio
import getpass
import socket
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerlog_spark.cli.control_service import control_stub
from ledgerlog_spark.cli.options import (
    DEFAULT_URI,
    ServiceUri,
    Yes,
    confirm,
    group,
    metadata,
)
from ledgerlog_spark.cli.output import (
    AsJson,
    console,
    counted,
    print_json,
    print_listing,
    print_outcome,
    print_table,
)
from ledgerlog_spark.errors import ConfigurationError, LedgerError, LedgerLogError

if TYPE_CHECKING:
    from ledgerlog_spark.transport import control_pb2 as pb
    from ledgerlog_spark.wire.accepted_loss import AcceptedLoss

PAGE_LEDGERS = 1_000
CALL_SECONDS = 30.0
ACCEPT_SECONDS = 600.0
NOT_TRIED = "not tried yet"
MEANINGS = {
    "waiting": "waits until the ledger is closed",
    "incomplete": "is tried again",
    "needs_operator": "needs an operator",
}

app = group(
    "Show the ledgers that may have lost records on a bookie, accept losses, or report a loss.",
    "ledgerlog bookie limbo list --bookie-id bookie-0",
)
BookieId = Annotated[
    str | None, typer.Option(metavar="ID", help="Bookie ID. `ledgerlog bookies list` shows all.")
]
Grpc = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Address of the bookie's gRPC port. ZooKeeper is not used."
    ),
]


@app.command("list", epilog="Example: ledgerlog bookie limbo list --bookie-id bookie-0")
def list_limbo(
    bookie_id: BookieId = None,
    grpc: Grpc = None,
    accepted: Annotated[
        bool,
        typer.Option("--accepted", help="List the accepted losses of the bookie, from ZooKeeper."),
    ] = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """List the ledgers in limbo on a running bookie, and the state of the repair.

    In limbo, the bookie serves the entries that it has, but it does not deny
    that other entries exist. The exit code is 1 if a ledger needs an operator.
    """
    if accepted:
        _print_accepted(uri, bookie_id, as_json=as_json)
        return
    replies = asyncio.run(_pages(uri, bookie_id, grpc))
    last = replies[-1]
    ledgers = [_fields(each) for reply in replies for each in reply.ledgers]
    if as_json:
        fields = ("epoch", "is_in_doubt", "repair_state", "ledgers_left", "entries_fetched")
        print_json({**{name: getattr(last, name) for name in fields}, "ledgers": ledgers})
    else:
        doubt = "may be in limbo too" if last.is_in_doubt else "are not in limbo"
        console.print(
            f"repair: {last.repair_state}, {counted(last.ledgers_left, 'ledger', 'ledgers')} left, "
            f"{counted(last.entries_fetched, 'entry', 'entries')} fetched. Ledgers of which the "
            f"bookie has nothing {doubt}",
            soft_wrap=True,
        )
        rows = [
            (each["ledger_id"], each["state"], MEANINGS.get(each["outcome"], NOT_TRIED), _why(each))
            for each in ledgers
        ]
        print_table("ledgers in limbo", ("ledger", "state", "repair", "reason"), rows)
    needs_operator = any(each["outcome"] == "needs_operator" for each in ledgers)
    raise typer.Exit(1 if needs_operator else 0)


@app.command(
    "accept",
    epilog='Example: ledgerlog bookie limbo accept 17 --bookie-id bookie-0 --reason "disks lost"',
)
def accept(
    ledger_id: Annotated[int, typer.Argument(metavar="LEDGER", help="Ledger ID.", min=0)],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Reason why the loss is accepted. It is recorded.")
    ],
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also give up entries although another bookie does not answer or is in limbo, "
            "so it is unknown whether that bookie has them.",
        ),
    ] = False,
    unclosed: Annotated[
        bool,
        typer.Option(
            "--unclosed",
            help="Also accept the loss of a ledger in recovery. Then the recovery may close the "
            "ledger before entries that only this bookie had.",
        ),
    ] = False,
    bookie_id: BookieId = None,
    grpc: Grpc = None,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Give up the lost entries of a ledger, if no other bookie has them.

    The bookie repairs the ledger once more. If entries are still missing, it
    records them in its file AUDIT and in ZooKeeper, and denies from then on
    that they exist. Without --force, nothing is given up while another
    bookie may still have them.
    """
    if not reason.strip():
        raise ConfigurationError("--reason is empty: write why the loss is accepted")
    if not yes:
        typer.echo(
            f"the entries of ledger {ledger_id} that no other bookie has are given up for ever",
            err=True,
        )
        confirm(f"accept the loss of ledger {ledger_id}", otherwise="nothing was given up")
    reply = asyncio.run(_accept(uri, bookie_id, grpc, (ledger_id, reason, force, unclosed)))
    if reply.refusal:
        raise LedgerError(reply.refusal, ledger_id=ledger_id, retriable=reply.is_retriable)
    lost = counted(reply.entries_count, "entry", "entries")
    text = (
        f"gave up {lost} of ledger {ledger_id}, which has left limbo"
        if reply.is_lost
        else f"ledger {ledger_id} is repaired, so nothing was given up"
    )
    outcome = {
        "ledger_id": ledger_id,
        "is_lost": reply.is_lost,
        "entries_count": reply.entries_count,
        "entry_ids": list(reply.entry_ids),
    }
    print_outcome(outcome, text, as_json=as_json)


@app.command(
    "raise",
    epilog='Example: ledgerlog bookie limbo raise --bookie-id bookie-0 --reason "restored a disk"',
)
def raise_doubt(
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Reason for the doubt. The bookie logs it.")
    ],
    bookie_id: BookieId = None,
    grpc: Grpc = None,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Put all ledgers of a running bookie in limbo, because it may have lost records.

    A bookie detects most losses at its start. Use this command after a loss
    that it cannot detect, such as a restored file. The bookie then compares
    all its ledgers with other bookies, and fetches the entries that it lacks.
    Until a ledger is repaired, the bookie does not deny that an entry of this
    ledger exists.
    """
    if not reason.strip():
        raise ConfigurationError("--reason is empty: describe the possible loss")
    if not yes:
        typer.echo("the bookie compares all its ledgers with other bookies", err=True)
        confirm("put all ledgers of the bookie in limbo", otherwise="nothing was changed")
    reply = asyncio.run(_raise(uri, bookie_id, grpc, reason))
    if reply.refusal:
        raise LedgerLogError(reply.refusal)
    text = "all ledgers are in limbo; `ledgerlog bookie limbo list` shows the repair"
    print_outcome({"epoch": reply.epoch}, text, as_json=as_json)


def _print_accepted(uri: str, bookie_id: str | None, *, as_json: bool) -> None:
    if bookie_id is None:
        raise ConfigurationError("--accepted needs --bookie-id")

    async def read() -> list[AcceptedLoss]:
        async with metadata(uri) as stores:
            return await stores.accepted_losses.of_bookie(bookie_id)

    print_listing(
        [asdict(loss) for loss in asyncio.run(read())],
        lambda loss: (
            loss["ledger_id"],
            loss["entries_count"],
            datetime.fromtimestamp(loss["accepted_ms"] / 1_000, UTC).isoformat(timespec="seconds"),
            loss["accepted_by"],
            loss["reason"],
        ),
        title=f"accepted losses of bookie {bookie_id}",
        columns=("ledger", "entries", "time", "accepted by", "reason"),
        as_json=as_json,
    )


async def _pages(uri: str, bookie_id: str | None, grpc: str | None) -> list[pb.ListLimboReply]:
    from ledgerlog_spark.transport import control_pb2 as messages

    replies: list[pb.ListLimboReply] = []
    async with control_stub(uri, bookie_id, grpc) as stub:
        after = -1
        while not replies or replies[-1].has_more:
            request = messages.ListLimboRequest(after_ledger_id=after, count_max=PAGE_LEDGERS)
            replies.append(await stub.ListLimbo(request, timeout=CALL_SECONDS))
            if not replies[-1].ledgers:
                break
            after = replies[-1].ledgers[-1].ledger_id
    return replies


async def _accept(
    uri: str, bookie_id: str | None, grpc: str | None, what: tuple[int, str, bool, bool]
) -> pb.AcceptLossReply:
    from ledgerlog_spark.transport import control_pb2 as messages

    ledger_id, reason, is_forced, is_unclosed = what
    request = messages.AcceptLossRequest(
        ledger_id=ledger_id,
        reason=reason,
        accepted_by=_operator(),
        is_forced=is_forced,
        is_unclosed=is_unclosed,
    )
    async with control_stub(uri, bookie_id, grpc) as stub:
        reply: pb.AcceptLossReply = await stub.AcceptLoss(request, timeout=ACCEPT_SECONDS)
        return reply


async def _raise(
    uri: str, bookie_id: str | None, grpc: str | None, reason: str
) -> pb.RaiseDoubtReply:
    from ledgerlog_spark.transport import control_pb2 as messages

    request = messages.RaiseDoubtRequest(reason=reason, raised_by=_operator())
    async with control_stub(uri, bookie_id, grpc) as stub:
        reply: pb.RaiseDoubtReply = await stub.RaiseDoubt(request, timeout=CALL_SECONDS)
        return reply


def _operator() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _fields(ledger: pb.LimboLedger) -> dict[str, Any]:
    return {
        "ledger_id": ledger.ledger_id,
        "outcome": ledger.outcome or None,
        "state": ledger.state or None,
        "problem": ledger.problem or None,
        "missing": list(ledger.missing),
        "missing_count": ledger.missing_count,
    }


def _why(ledger: dict[str, Any]) -> str | None:
    if not ledger["missing_count"]:
        problem: str | None = ledger["problem"]
        return problem
    first = ", ".join(map(str, ledger["missing"]))
    more = "" if ledger["missing_count"] == len(ledger["missing"]) else ", ..."
    lost = counted(ledger["missing_count"], "entry", "entries")
    if ledger["outcome"] == "needs_operator":
        return f"all other bookies deny {lost}: {first}{more}"
    return f"{lost} missing: {first}{more} ({ledger['problem']})"
