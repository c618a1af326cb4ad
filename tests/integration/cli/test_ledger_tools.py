"""`ledgers check`, `show --replicas`, `export` and `import` on a real cluster."""

from __future__ import annotations

import asyncio
import json
import stat
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.composition import metadata
from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState
from ledgerlog_spark.protocol.ledger.quorum import write_set

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster
    from ledgerlog_spark.metadata.stores import MetadataStores
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


def in_store(cluster: Cluster, work: Callable[[MetadataStores], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with metadata(cluster.metadata_service_uri) as stores:
            return await work(stores)

    return asyncio.run(run())


def rewrite(
    cluster: Cluster, ledger_id: int, change: Callable[[LedgerMetadata], LedgerMetadata]
) -> None:
    """Change a record, as another program might."""

    async def work(stores: MetadataStores) -> None:
        found = await stores.ledgers.load(ledger_id)
        await stores.ledgers.write(ledger_id, change(found.value), found.version)

    in_store(cluster, work)


def closed_ledger(
    client: BlockingClient, entries: int = 5, *, size: int = 3, write: int = 3, ack: int = 2
) -> int:
    ledger = client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
    ledger.append_batch([b"entry %d" % number for number in range(entries)])
    ledger.close()
    return ledger.id


@contextmanager
def killed(cluster: Cluster, bookie_id: str) -> Iterator[None]:
    cluster.kill(bookie_id)
    try:
        yield
    finally:
        cluster.start(bookie_id)


def findings(ended: Ended) -> list[tuple[int | None, str, str]]:
    found = json.loads(ended.out)["findings"]
    return [(each["ledger_id"], each["severity"], each["finding"]) for each in found]


def test_sound_ledgers_of_all_states_are_sound(run: Run, client: BlockingClient) -> None:
    closed = closed_ledger(client)
    striped = closed_ledger(client, 50, size=3, write=2)
    empty = closed_ledger(client, 0)
    writer = client.create_ledger()
    writer.append(b"x")
    for ledger_id in (closed, striped, empty, writer.id):
        ended = run("ledgers", "check", ledger_id, "--json", "--notes")
        assert (ended.code, findings(ended)) == (0, []), ended
    found = run("ledgers", "check", "--all", "--json").json
    assert found["ledgers"] == found["sound"] == found["copies_checked"]
    assert found["states"]["CLOSED"] >= 3
    assert "0 wrong, 0 warnings" in run("ledgers", "check", "--all").done
    writer.append(b"the ledger was not fenced")
    writer.close()


def test_a_bookie_that_lacks_a_ledger_is_named(
    run: Run, client: BlockingClient, cluster: Cluster
) -> None:
    ledger_id = closed_ledger(client, size=2, write=2)
    members = {member.id for member in cluster.members.bookies}
    ensemble = client.ledger_metadata(ledger_id).last_fragment.ensemble
    (third,) = members - set(ensemble)

    def widened(found: LedgerMetadata) -> LedgerMetadata:
        quorum = replace(found.quorum, ensemble_size=3, write_quorum=3)
        return replace(found, quorum=quorum, fragments=(Fragment(0, (*ensemble, third)),))

    rewrite(cluster, ledger_id, widened)
    ended = run("ledgers", "check", ledger_id, "--json")
    assert ended.code == 0
    assert findings(ended) == [
        (ledger_id, "warning", f"entries 0 to 4: at least 2 of 3 copies; missing on {third}")
    ]
    offline = run("ledgers", "check", ledger_id, "--offline", "--json")
    assert (offline.code, findings(offline)) == (0, [])
    shown = run("ledgers", "show", ledger_id, "--replicas", "--json")
    assert shown.code == 1
    replicas = json.loads(shown.out)["replicas"]
    assert replicas["bookies"][third] == {"intact": 0, "absent": 5, "damaged": 0, "unknown": 0}
    assert (replicas["fewest"], replicas["entries"], replicas["differing"]) == (2, 5, 0)
    picture = run("ledgers", "show", ledger_id, "--replicas", "--first", 1, "--last", 2)
    assert f"entry 1 on {third}: the bookie does not have it" in picture.out
    assert "entry 3 on" not in picture.out

    rewrite(cluster, ledger_id, lambda m: replace(m, quorum=replace(m.quorum, ack_quorum=3)))
    ended = run("ledgers", "check", ledger_id)
    assert ended.code == 1
    assert "This is fewer than the ack quorum, 3" in " ".join(ended.out.split())
    client.delete_ledger(ledger_id)


def test_copies_of_a_bookie_that_is_down_are_unknown_and_not_lost(
    run: Run, client: BlockingClient, cluster: Cluster
) -> None:
    ledger_id = closed_ledger(client)
    with killed(cluster, "bookie-1"):
        ended = run("ledgers", "check", ledger_id, "--json", "--notes")
        assert ended.code == 0
        assert {severity for _, severity, _ in findings(ended)} == {"note"}
        assert any("unknown on bookie-1" in what for *_, what in findings(ended))
        shown = run("ledgers", "show", ledger_id, "--replicas", "--json")
        assert shown.code == 1
        replicas = json.loads(shown.out)["replicas"]
        assert replicas["bookies"]["bookie-1"]["unknown"] == 5
        assert replicas["fewest"] == 2


def test_equal_copies_are_equal(run: Run, client: BlockingClient) -> None:
    ledger_id = closed_ledger(client, 100, size=3, write=2)
    replicas = run("ledgers", "show", ledger_id, "--replicas", "--json").json["replicas"]
    assert (replicas["entries"], replicas["findings_count"], replicas["fewest"]) == (100, 0, 2)
    quorum = client.ledger_metadata(ledger_id).quorum
    copies = sum(len(write_set(quorum, entry_id)) for entry_id in range(100))
    assert sum(each["intact"] for each in replicas["bookies"].values()) == copies
    assert "all copies are intact and equal" in run("ledgers", "show", ledger_id, "--replicas").out
    beyond = run("ledgers", "show", ledger_id, "--replicas", "--last", 100)
    assert beyond.code == 2
    assert "the last entry of ledger" in beyond.err


def test_an_unreadable_record_does_not_hide_the_others(
    run: Run, client: BlockingClient, cluster: Cluster
) -> None:
    ledger_id = closed_ledger(client)

    async def damage(stores: MetadataStores) -> bytes:
        path = stores.ledgers.path(ledger_id)
        before = await stores.tree.get(path)
        await stores.tree.set(path, b"not a record", before.version)
        return before.value

    before = in_store(cluster, damage)
    ended = run("ledgers", "check", "--all", "--json")
    assert ended.code == 1
    ((found, severity, what),) = findings(ended)
    assert (found, severity) == (ledger_id, "wrong")
    assert f"the metadata of ledger {ledger_id} cannot be read" in what
    assert json.loads(ended.out)["states"]["unreadable"] == 1
    in_store(cluster, lambda stores: stores.tree.set(stores.ledgers.path(ledger_id), before, None))
    assert run("ledgers", "check", "--all").code == 0


def test_the_ledgers_of_one_bookie_are_listed(run: Run, client: BlockingClient) -> None:
    ledger_id = closed_ledger(client, size=1, write=1, ack=1)
    (own,) = client.ledger_metadata(ledger_id).last_fragment.ensemble
    for member in ("bookie-0", "bookie-1", "bookie-2"):
        listed = run("ledgers", "list", "--bookie-id", member, "--json").json
        assert (ledger_id in {each["ledger_id"] for each in listed}) == (member == own)


def test_a_check_needs_one_ledger_or_all(run: Run) -> None:
    for wrong in ((), (1, "--all")):
        ended = run("ledgers", "check", *wrong)
        assert (ended.code, ended.out) == (2, "")
        assert "pass the ID of a ledger, or --all" in ended.err
    missing = run("ledgers", "check", 999_999)
    assert missing.code == 1
    assert "ledger 999999 does not exist" in missing.err


def test_a_deleted_ledger_returns_with_its_exported_record(
    run: Run, client: BlockingClient, tmp_path: Path
) -> None:
    ledger_id = closed_ledger(client)
    file = tmp_path / "ledger.json"
    assert str(file) in run("ledgers", "export", ledger_id, "--output", file).done
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == json.loads(run("ledgers", "export", ledger_id).done)
    again = run("ledgers", "export", ledger_id, "--output", file)
    assert again.code == 2
    assert "exists and was not changed" in again.err
    before = client.ledger_metadata(ledger_id)
    client.delete_ledger(ledger_id)
    imported = run("ledgers", "import", file, "--yes", "--json").json
    assert (imported["ledger_id"], imported["state"], imported["version"]) == (
        ledger_id,
        "CLOSED",
        0,
    )
    assert client.ledger_metadata(ledger_id) == before


def test_an_existing_record_is_replaced_only_by_its_version(
    run: Run, client: BlockingClient, cluster: Cluster, tmp_path: Path
) -> None:
    ledger_id = closed_ledger(client)
    file = tmp_path / "ledger.json"
    run("ledgers", "export", ledger_id, "-o", file)
    version = json.loads(file.read_text())["version"]
    refused = run("ledgers", "import", file, "--yes")
    assert refused.code == 2
    assert f"--replace-version {version} to replace it" in refused.err
    rewrite(cluster, ledger_id, lambda found: replace(found, custom={"changed": b"yes"}))
    stale = run("ledgers", "import", file, "--replace-version", version, "--yes")
    assert stale.code == 2
    assert f"version {version + 1}, not {version}" in stale.err
    assert client.ledger_metadata(ledger_id).custom == {"changed": b"yes"}
    done = run("ledgers", "import", file, "--replace-version", version + 1, "--yes")
    assert f"as version {version + 2}" in done.done
    assert client.ledger_metadata(ledger_id).custom == {}


def test_no_import_opens_a_closed_ledger(
    run: Run, client: BlockingClient, cluster: Cluster, tmp_path: Path
) -> None:
    writer = client.create_ledger()
    writer.append(b"x")
    file = tmp_path / "open.json"
    run("ledgers", "export", writer.id, "-o", file)
    writer.close()
    version = in_store(cluster, lambda stores: stores.ledgers.load(writer.id)).version.number
    ended = run("ledgers", "import", file, "--replace-version", version, "--yes")
    assert ended.code == 1
    assert "never returns to an earlier state" in ended.err
    assert client.ledger_metadata(writer.id).state is LedgerState.CLOSED


def test_a_file_that_is_no_record_is_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x"
    missing = run("ledgers", "import", file)
    assert missing.code == 2
    assert "No such file" in missing.err
    file.write_text("{}")
    ended = run("ledgers", "import", file)
    assert ended.code == 2
    assert "is not an exported record" in ended.err
