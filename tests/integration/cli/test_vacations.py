"""`bookies drain|decommission|recover` on a real cluster, without a process of auto-recovery."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.cli import vacations
from ledgerlog_spark.composition import metadata
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import SERVICE_URI_VARIABLE
from ledgerlog_spark.wire.repair_notes import Vacation, VacationKind, VacationPhase
from tests.fixtures import patience
from tests.fixtures.command_line import COMMAND

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@pytest.fixture(scope="module", autouse=True)
def _pairs(client: BlockingClient) -> None:
    """Ledgers with two copies, for which the third bookie is a target."""
    for _ in range(6):
        with client.create_ledger(ensemble_size=2, write_quorum=2) as ledger:
            ledger.append(bytes(10_000))


def test_a_dry_run_shows_figures_and_changes_nothing(run: Run) -> None:
    found = run("bookies", "drain", "bookie-0", "--dry-run", "--json").json
    assert found["ledgers"] > 0
    assert found["bytes"] == 10_000 * found["ledgers"]
    assert (found["targets"], found["refusals"]) == (2, [])
    assert found["free_bytes_elsewhere"] > 1 << 20
    assert "free_bytes_elsewhere" in run("bookies", "drain", "bookie-0", "--dry-run").done
    assert run("bookies", "drain", "bookie-0", "--cancel").code == 1, "there is no vacation"


def test_a_vacation_that_cannot_end_is_refused(run: Run, client: BlockingClient) -> None:
    """AUTORECOVERY.md#Y3."""
    registered = run("bookies", "recover", "bookie-0", "--dry-run")
    assert registered.code == 1
    assert "bookie bookie-0 is registered" in registered.err
    unknown = run("bookies", "drain", "bookie-9", "--yes")
    assert unknown.code == 1
    assert "bookie bookie-9 is not known" in unknown.err
    with client.create_ledger() as ledger:
        ledger.append(b"three copies")
    full = run("bookies", "decommission", "bookie-0", "--yes")
    assert full.code == 1
    assert "1 fragments with ensemble_size 3 have no target" in full.err
    assert "too few bookies among the 2 other writable bookies" in full.err
    client.delete_ledger(ledger.id)
    assert run("bookies", "drain", "bookie-0", "--dry-run", "--cancel").code == 2
    assert run("bookies", "drain", "a/b", "--dry-run").code == 2


def test_ctrl_c_ends_the_display_and_cancel_ends_the_vacation(run: Run, cluster: Cluster) -> None:
    """AUTORECOVERY.md#Y1."""
    command = [*COMMAND, "bookies", "drain", "bookie-1", "--yes"]
    environment = {**os.environ, SERVICE_URI_VARIABLE: cluster.metadata_service_uri}
    watching = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    def state() -> str:
        listed = run("bookies", "list", "--json").json
        return next(each["state"] for each in listed if each["bookie_id"] == "bookie-1")

    try:
        patience.until(lambda: state() == "read-only")
        assert watching.stderr is not None
        warned = watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        said, _ = watching.communicate(timeout=patience.PATIENCE_SECONDS)
    finally:
        watching.kill()
    assert "no auditor runs" in warned
    assert "the vacation of bookie bookie-1 continues" in said
    run("autorecovery", "disable")
    again = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert again.stderr is not None
        assert "auto-recovery is disabled" in again.stderr.readline()
    finally:
        again.kill()
        again.communicate()
        run("autorecovery", "enable")
    other = run("bookies", "decommission", "bookie-1", "--yes")
    assert "has a vacation of kind drain" in other.err
    second = run("bookies", "drain", "bookie-2", "--yes")
    assert "bookie bookie-1 is being taken out of service" in second.err
    assert run("bookies", "drain", "bookie-1", "--cancel", "--json").json["is_cancelled"]
    patience.until(lambda: state() == "writable")


def test_a_vacation_that_began_during_the_question_is_noticed(run: Run, cluster: Cluster) -> None:
    """AUTORECOVERY.md#Y3."""
    uri = cluster.metadata_service_uri
    wish = vacations._Wish(VacationKind.DRAIN, "bookie-1", False, False, False, uri, False)
    held = asyncio.run(vacations._look(wish))
    assert held is not None

    async def go_beside_another() -> None:
        async with metadata(uri) as stores:
            other = Vacation(VacationKind.DRAIN, VacationPhase.DRAINING)
            version = await stores.vacations.write("bookie-2", other, None)
            try:
                await vacations._begin(wish, held)
            finally:
                await stores.vacations.delete("bookie-2", version)

    with pytest.raises(LocalProtocolError, match="bookie-2"):
        asyncio.run(go_beside_another())
    nothing = run("bookies", "drain", "bookie-1", "--cancel")
    assert "has no vacation of kind drain" in nothing.err
