"""`ledgerlog autorecovery enable|disable|audit|delay`: settings for the whole cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, metadata
from ledgerlog_spark.cli.output import AsJson, print_outcome
from ledgerlog_spark.metadata.stores import MetadataStores

DELAY_SECONDS_MAX = 7 * 86_400

T = TypeVar("T")

app = typer.Typer()


def with_stores(uri: str, work: Callable[[MetadataStores], Awaitable[T]]) -> T:
    """Run `work` with the stores of an existing cluster."""

    async def run() -> T:
        async with metadata(uri) as stores:
            await stores.registration.instance_id()  # raises an error if there is no cluster
            return await work(stores)

    return asyncio.run(run())


@app.command("enable", epilog="Example: ledgerlog autorecovery enable")
def enable(uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """Enable auto-recovery for the whole cluster."""
    is_changed = with_stores(uri, lambda stores: stores.recovery_switch.enable())
    then = "is enabled" if is_changed else "was enabled already"
    outcome = {"is_enabled": True, "is_changed": is_changed}
    print_outcome(outcome, f"auto-recovery {then}", as_json=as_json)


@app.command("disable", epilog="Example: ledgerlog autorecovery disable")
def disable(uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """Disable auto-recovery for the whole cluster, for example during an upgrade.

    Until `autorecovery enable` runs, no auditor marks ledgers, and no worker
    starts to heal a ledger. The daemons of Apache BookKeeper also obey this
    setting.
    """
    is_changed = with_stores(uri, lambda stores: stores.recovery_switch.disable())
    then = "is disabled" if is_changed else "was disabled already"
    text = f"auto-recovery {then}; `ledgerlog autorecovery enable` enables it again"
    print_outcome({"is_enabled": False, "is_changed": is_changed}, text, as_json=as_json)


@app.command("audit", epilog="Example: ledgerlog autorecovery audit")
def audit(uri: ServiceUri = DEFAULT_URI, as_json: AsJson = False) -> None:
    """Request an audit now: the auditor marks the ledgers of all lost bookies.

    The command does not wait for the audit. The exit code is 4 if no auditor
    runs. In this case, the request is stored, and the next auditor audits at
    its start.
    """

    async def work(stores: MetadataStores) -> tuple[str | None, bool]:
        await stores.recovery_switch.audit_now()
        is_enabled = await stores.recovery_switch.is_enabled()
        return await stores.auditor_election.current(), is_enabled

    auditor, is_enabled = with_stores(uri, work)
    if auditor is None:
        text = "no auditor runs: start one with `ledgerlog autorecovery run`"
    elif is_enabled:
        text = f"an audit is requested from {auditor}; `ledgerlog autorecovery status` shows it"
    else:
        text = (
            f"an audit is requested from {auditor}, but auto-recovery is disabled: run `ledgerlog "
            "autorecovery enable`"
        )
    outcome = {"auditor": auditor, "is_enabled": is_enabled}
    print_outcome(outcome, text, as_json=as_json)
    raise typer.Exit(0 if auditor is not None else 4)


@app.command("delay", epilog="Example: ledgerlog autorecovery delay 60")
def delay(
    seconds: Annotated[
        int | None,
        typer.Argument(
            metavar="SECONDS",
            help="New delay; by default, the command shows the delay.",
            min=0,
            max=DELAY_SECONDS_MAX,
        ),
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Show or set how long the auditor waits before it marks the ledgers of one lost bookie.

    The delay gives a bookie time to restart. If two bookies are lost, the
    auditor does not wait. A new delay also applies to a bookie that is already
    lost. With 0, the auditor begins immediately.
    """

    async def work(stores: MetadataStores) -> int | None:
        if seconds is not None:
            await stores.recovery_switch.set_lost_bookie_delay(seconds)
            return seconds
        found = await stores.recovery_switch.lost_bookie_delay()
        return None if found is None else found.value

    stored = with_stores(uri, work)
    text = (
        "no delay is stored; the first auditor stores its default"
        if stored is None
        else f"the auditor waits {stored:,} s before it marks the ledgers of one lost bookie"
    )
    print_outcome({"delay_s": stored}, text, as_json=as_json)
