"""`ledgerlog simpletest` and `ledgerlog bookies sanity`: write, read and delete a small ledger."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, connect
from ledgerlog_spark.cli.output import AsJson, counted, print_outcome
from ledgerlog_spark.model import Quorum
from ledgerlog_spark.tools.probes import Probe, probe_bookie, probe_cluster

Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", help="Maximum time for the test.", min=0.1)
]
ENTRY_BYTES_MAX = 1 << 20

app = typer.Typer()


def simpletest(
    entries: Annotated[
        int, typer.Option(metavar="N", help="Number of entries.", min=1, max=100_000)
    ] = 1_000,
    size: Annotated[
        int,
        typer.Option(metavar="N", help="Bytes of each entry.", min=1, max=ENTRY_BYTES_MAX),
    ] = 100,
    ensemble: Annotated[int, typer.Option(metavar="E", help="Number of bookies.", min=1)] = 3,
    write_quorum: Annotated[
        int, typer.Option(metavar="QW", help="Number of copies of each entry.", min=1)
    ] = 3,
    ack_quorum: Annotated[
        int,
        typer.Option(
            metavar="QA", help="Number of copies on disk before an entry is acknowledged.", min=1
        ),
    ] = 2,
    timeout: Timeout = 60.0,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Create a ledger, write entries, read them back, and delete the ledger."""
    quorum = Quorum(ensemble, write_quorum, ack_quorum)
    with connect(uri) as client:
        probe = client.run(
            lambda connected: probe_cluster(
                connected, quorum, entries=entries, size_bytes=size, timeout_s=timeout
            )
        )
    _print(probe, f"the cluster at {uri} works", as_json=as_json)


@app.command("sanity", epilog="Example: ledgerlog bookies sanity bookie-0")
def sanity(
    bookie_id: Annotated[
        str, typer.Argument(metavar="ID", help="Bookie ID. `bookies list` shows all.")
    ],
    entries: Annotated[
        int, typer.Option(metavar="N", help="Number of entries.", min=1, max=100_000)
    ] = 10,
    timeout: Timeout = 5.0,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Write a ledger that is only on one bookie, read it back, and delete it."""
    with connect(uri) as client:
        probe = client.run(
            lambda connected: probe_bookie(connected, bookie_id, entries=entries, timeout_s=timeout)
        )
    _print(probe, f"bookie {bookie_id} works", as_json=as_json)


def _print(probe: Probe, verdict: str, *, as_json: bool) -> None:
    text = (
        f"{verdict}: {counted(probe.entries, 'entry', 'entries')} written in "
        f"{probe.append_s * 1e3:,.0f} ms and read in {probe.read_s * 1e3:,.0f} ms, on "
        f"{', '.join(probe.bookies)}; ledger {probe.ledger_id} is deleted"
    )
    print_outcome(asdict(probe), text, as_json=as_json)
