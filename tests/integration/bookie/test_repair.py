"""Real bookies that lose entries, and fetch them from the other bookies."""

from __future__ import annotations

import json
import shutil
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.bookie_cluster import BookieCluster, bookie_cluster
from tests.fixtures.command_line import Ended, run_here
from tests.fixtures.patience import until
from tests.fixtures.ports import free_port
from tests.fixtures.replicas import Copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
    from ledgerlog_spark.log.clients import BlockingLogClient
    from tests.fixtures.bookie_process import BookieProcess

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

NUMBERS = Path("/dev/shm")
ENTRIES = 40
LEDGERS = 4


def payload(ledger_id: int, entry_id: int) -> bytes:
    return b"%d/%d " % (ledger_id, entry_id) * 50


@pytest.fixture
def cluster(
    zookeeper: ZooKeeperProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[BookieCluster]:
    """Three bookies of its own: a test may replace their directories."""
    root = f"/r-{abs(hash(request.node.nodeid))}"
    uri = f"zk://{zookeeper.connect_string}{root}/ledgers"
    with bookie_cluster(tmp_path, uri) as running:
        yield running


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    cluster: BookieCluster,
) -> Run:
    """`run("list")` runs `ledgerlog bookie limbo list` in this process."""
    monkeypatch.setenv("LEDGERLOG_METADATA_SERVICE_URI", cluster.uri)
    return partial(run_here, monkeypatch, capfdbinary, "bookie", "limbo")


def written(cluster: BookieCluster, ledgers: int = LEDGERS, **spec: Any) -> list[int]:
    """Write closed ledgers on all three bookies, and return their ids."""
    ids = []
    with cluster.connect() as client:
        for _ in range(ledgers):
            with client.create_ledger(**spec) as ledger:
                for entry_id in range(ENTRIES):
                    ledger.append(payload(ledger.id, entry_id))
                ids.append(ledger.id)
    return ids


def check(cluster: BookieCluster, ledger_ids: list[int]) -> None:
    """Check that each bookie has each entry that it must have."""
    copies = Copies()
    with cluster.connect() as client:
        for ledger_id in ledger_ids:
            metadata = client.ledger_metadata(ledger_id)
            copies.check(ledger_id, metadata, cluster.bookies, partial(payload, ledger_id))
    assert copies.broken == []
    assert (copies.absent, copies.read) == (0, 3 * ENTRIES * len(ledger_ids))


def restarted(bookie: BookieProcess, **settings: Any) -> None:
    bookie.settings |= {"metrics_port": free_port(), **settings}
    bookie.start()


def repair_of(bookie: BookieProcess) -> dict[str, Any]:
    url = f"http://127.0.0.1:{bookie.settings['metrics_port']}/api/v1/bookie/repair"
    with urllib.request.urlopen(url, timeout=10) as answer:
        shown: dict[str, Any] = json.load(answer)
        return shown


def is_whole(bookie: BookieProcess) -> bool:
    """Whether the doubt has ended, and no ledger is in limbo."""
    shown = repair_of(bookie)
    is_over = shown["doubt"]["epoch"] and shown["doubt"]["isOver"]
    return bool(is_over and shown["repairState"] == "nothing to do")


def test_a_wiped_bookie_is_whole_again(cluster: BookieCluster, run: Run) -> None:
    ids = written(cluster)
    lost = cluster.bookies["bookie-1"]
    lost.kill()
    shutil.rmtree(lost.directory)
    restarted(lost, allow_lost_directory=True)
    until(partial(is_whole, lost))
    check(cluster, ids)
    assert repair_of(lost)["entriesFetched"] == ENTRIES * LEDGERS
    listed = run("list", "--bookie-id", "bookie-1")
    assert listed.code == 0, listed.err
    assert "nothing to do, 0 ledgers left, 160 entries fetched" in listed.out
    repaired = [line for line in lost.log().splitlines() if '"event": "repaired"' in line]
    assert len(repaired) == 1
    # The bookie stays whole: it lost nothing since.
    lost.kill()
    lost.start()
    check(cluster, ids)


def test_an_operator_raises_the_doubt_of_a_bookie_that_found_no_loss(
    cluster: BookieCluster, run: Run
) -> None:
    ids = written(cluster, ledgers=3)
    bookie = cluster.bookies["bookie-1"]
    bookie.stop()
    restarted(bookie)
    assert repair_of(bookie)["doubt"]["epoch"] == 0
    refused = run("raise", "--bookie-id", "bookie-1", "--reason", " ", "--yes")
    assert refused.code
    raised = run("raise", "--bookie-id", "bookie-1", "--reason", "a file was restored", "--yes")
    assert (raised.code, raised.err) == (0, "")
    until(partial(is_whole, bookie))
    assert repair_of(bookie)["doubt"]["epoch"] == 1
    assert '"reason": "a file was restored"' in bookie.log()
    check(cluster, ids)
    # The epoch is durable: after a restart the bookie knows that this doubt is over.
    bookie.kill()
    bookie.start()
    until(partial(is_whole, bookie))
    assert repair_of(bookie)["doubt"]["epoch"] == 1


def test_a_power_loss_of_an_unjournaled_bookie_loses_nothing_for_good(
    cluster: BookieCluster,
) -> None:
    lost = cluster.bookies["bookie-2"]
    lost.stop()
    restarted(lost, write_mode="unjournaled", checkpoint_interval_ms=600_000)
    ids = written(cluster)
    assert cut_power(lost) > 0
    lost.start()
    until(partial(is_whole, lost))
    check(cluster, ids)
    assert repair_of(lost)["entriesFetched"] == ENTRIES * LEDGERS


def cut_power(bookie: BookieProcess) -> int:
    """Kill a bookie, and take what it has not synced: its entries and its number in memory.

    Return the number of bytes that are lost. The bookie must not have synced any entry.
    """
    bookie.kill()
    size_bytes = 0
    for path in bookie.directory.glob("slot-*"):
        data = path.read_bytes()
        size_bytes += len(data[4_096:].rstrip(b"\0"))
        path.write_bytes(data[:4_096] + bytes(len(data) - 4_096))
    for path in NUMBERS.glob(f"*{bookie.manifest()['directory_id']}*"):
        path.unlink()
    return size_bytes


def test_yesterdays_copy_gets_the_entries_of_today(cluster: BookieCluster) -> None:
    lost = cluster.bookies["bookie-0"]
    older = written(cluster, 2)
    lost.stop()
    copy = lost.directory.with_name("copy")
    shutil.copytree(lost.directory, copy)
    restarted(lost)
    newer = written(cluster, 2)
    lost.kill()
    shutil.rmtree(lost.directory)
    copy.rename(lost.directory)
    lost.start()
    until(partial(is_whole, lost))
    check(cluster, older + newer)
    assert repair_of(lost)["entriesFetched"] == ENTRIES * 2


def test_two_wiped_bookies_get_their_entries_from_the_third(cluster: BookieCluster) -> None:
    ids = written(cluster)
    both = [cluster.bookies["bookie-0"], cluster.bookies["bookie-1"]]
    for lost in both:
        lost.kill()
        shutil.rmtree(lost.directory)
    for lost in both:
        restarted(lost, allow_lost_directory=True)
    for lost in both:
        until(partial(is_whole, lost))
    check(cluster, ids)


def test_an_open_ledger_leaves_limbo_when_it_is_closed(cluster: BookieCluster) -> None:
    lost = cluster.bookies["bookie-1"]
    with cluster.connect() as client:
        ledger = client.create_ledger()
        for entry_id in range(ENTRIES // 2):
            ledger.append(payload(ledger.id, entry_id))
        lost.kill()
        shutil.rmtree(lost.directory)
        restarted(lost, allow_lost_directory=True)
        until(lambda: repair_of(lost)["ledgersInLimbo"] == 1)
        for entry_id in range(ENTRIES // 2, ENTRIES):
            ledger.append(payload(ledger.id, entry_id))
        ledger.close()
        until(partial(is_whole, lost))
        check_copies(cluster, client, ledger.id)


def check_copies(cluster: BookieCluster, client: BlockingLogClient, ledger_id: int) -> None:
    """Check that each copy that the metadata names is there."""
    copies = Copies()
    metadata = client.ledger_metadata(ledger_id)
    copies.check(ledger_id, metadata, cluster.bookies, partial(payload, ledger_id))
    assert (copies.broken, copies.absent) == ([], 0)


def test_a_ledger_without_a_writer_is_recovered_and_repaired(cluster: BookieCluster) -> None:
    lost = cluster.bookies["bookie-1"]
    with cluster.connect() as client:
        ledger = client.create_ledger()
        for entry_id in range(ENTRIES):
            ledger.append(payload(ledger.id, entry_id))
        ledger_id = ledger.id
    lost.kill()
    shutil.rmtree(lost.directory)
    restarted(lost, allow_lost_directory=True, repair_idle_ms=500)
    until(partial(is_whole, lost))
    with cluster.connect() as client:
        assert client.ledger_metadata(ledger_id).last_entry_id == ENTRIES - 1
        check_copies(cluster, client, ledger_id)
    # A look at the record may overlap with the recovery, and begin another one.
    assert repair_of(lost)["ledgersRecovered"] >= 1


def test_an_operator_gives_up_what_no_bookie_has(cluster: BookieCluster, run: Run) -> None:
    (ledger_id,) = written(cluster, 1)
    for lost in cluster.bookies.values():
        lost.kill()
        shutil.rmtree(lost.directory)
    for lost in cluster.bookies.values():
        restarted(lost, allow_lost_directory=True)
    first = cluster.bookies["bookie-0"]
    until(lambda: repair_of(first)["ledgersInLimbo"] == 1)
    grpc = f"127.0.0.1:{first.grpc_port}"
    # The repair has noted its result before the ledger has a state that the list contains.
    (found,) = until(lambda: run("list", "--grpc", grpc, "--json").json["ledgers"])
    assert (found["ledger_id"], found["outcome"]) == (ledger_id, "incomplete")
    assert found["missing_count"] == ENTRIES
    accept = ("accept", str(ledger_id), "--reason", "all disks burnt", "--yes")
    refused = run(*accept, "--bookie-id", "bookie-0")
    assert refused.code == 4
    assert "pass --force" in refused.err
    assert not (first.directory / "AUDIT").exists()
    given_up = run(*accept, "--bookie-id", "bookie-0", "--force")
    assert f"gave up 40 entries of ledger {ledger_id}" in given_up.out, given_up.err
    line = json.loads((first.directory / "AUDIT").read_text())
    assert (line["entries_count"], line["reason"]) == (ENTRIES, "all disks burnt")
    accepted = run("list", "--accepted", "--bookie-id", "bookie-0")
    assert "all disks burnt" in accepted.out
    until(partial(is_whole, first))
    # The others still have limbo, but now a bookie denies the entries.
    assert run("accept", "999", "--reason", "x", "--yes", "--bookie-id", "bookie-0").code == 1
    first.kill()
    first.start()
    until(partial(is_whole, first))


def test_a_bookie_that_is_not_there_is_named(cluster: BookieCluster, run: Run) -> None:
    assert run("list").code == 2
    unknown = run("list", "--bookie-id", "bookie-9")
    assert unknown.code != 0
    gone = run("list", "--grpc", f"127.0.0.1:{free_port()}")
    assert "did not answer (unavailable" in gone.err
    assert cluster.bookies
