"""The routes of the metrics port, over real storage: answers, methods, bodies, changes."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from wsgiref.util import setup_testing_defaults

import pytest

from bookie_server.config import BookieSettings
from bookie_server.service.admin import view as view_module
from bookie_server.service.admin.routes import BODY_BYTES_MAX, METRICS, ROUTES, AdminApplication
from bookie_server.service.admin.view import BookieView
from bookie_server.service.metrics.counters import ServiceCollector, ServiceCounters
from bookie_server.service.metrics.durations import Durations
from bookie_server.service.metrics.loop_lag import LoopLag
from bookie_server.service.read_only import ReadOnlySwitch
from bookie_server.service.repair.progress import RepairProgress
from ledgerlog_spark.model import Code
from tests.unit.bookie_service.test_collector import World, a_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

READ_ONLY = "/api/v1/bookie/state/readonly"
GC = "/api/v1/bookie/gc"
CHANGES = [
    (path, method) for path, methods in ROUTES.items() for method in methods if method != "GET"
]


class Admin:
    """The routes of one bookie, called in threads like those of the server."""

    def __init__(self, view: BookieView, world: World | None) -> None:
        self.view = view
        self._world = world
        self.headers: dict[str, str] = {}

    @property
    def world(self) -> World:
        assert self._world is not None
        return self._world

    async def ask(
        self, path: str, method: str = "GET", body: bytes = b"", **environ: str
    ) -> tuple[int, bytes]:
        return await asyncio.to_thread(self._ask, path, method, body, environ)

    def _ask(self, path: str, method: str, body: bytes, more: dict[str, str]) -> tuple[int, bytes]:
        environ: dict[str, Any] = {"PATH_INFO": path, "REQUEST_METHOD": method}
        environ |= {"wsgi.input": io.BytesIO(body), "REMOTE_ADDR": "127.0.0.1"}
        if body:
            environ["CONTENT_LENGTH"] = str(len(body))
        setup_testing_defaults(environ)
        environ |= more
        statuses: list[str] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: object) -> Any:
            statuses.append(status)
            self.headers = dict(headers)

        answer = b"".join(AdminApplication(self.view)(environ, start_response))
        return int(statuses[0].split()[0]), answer

    async def json(self, path: str, method: str = "GET", body: bytes = b"") -> Any:
        status, answer = await self.ask(path, method, body)
        assert status == 200, answer
        assert self.headers["Content-Type"] == "application/json"
        return json.loads(answer)


@asynccontextmanager
async def an_admin(directory: Path, **settings: Any) -> AsyncIterator[Admin]:
    given = {"directories": (directory,), "admin_changes": True, **settings}
    async with a_world(directory) as world:
        view = BookieView(BookieSettings(**given), "b1")
        world.collector._on_pass = view.note_pass
        world.storage.compactor.on_compacted = view.note_compaction
        storage = world.storage
        metrics = ServiceCollector(
            ServiceCounters(), {}, storage.counters.by_metric, LoopLag(), Durations()
        )
        view.serve(storage, world.collector, metrics, RepairProgress(), ReadOnlySwitch(storage))
        view.is_running = True
        yield Admin(view, world)


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with an_admin(tmp_path / "b1") as made:
        yield made


async def test_a_bookie_is_made_read_only_and_writable_by_hand(admin: Admin) -> None:
    changes: list[bool] = []
    storage = admin.world.storage
    storage.on_state_change = lambda: changes.append(storage.is_writable)
    assert await admin.json(READ_ONLY) == {"readOnly": False}
    assert await admin.json(READ_ONLY, "PUT", b'{"readOnly": true}') == {"readOnly": True}
    assert (await admin.json("/api/v1/bookie/state"))["readOnly"]
    assert await admin.world.add(1) is Code.READ_ONLY
    assert admin.view.status_number() == 0
    await admin.json(READ_ONLY, "PUT", b'{"readOnly": true}')
    assert changes == [False], "a state that was set already is not announced again"
    assert await admin.json(READ_ONLY, "PUT", b'{"readOnly": false}') == {"readOnly": False}
    assert await admin.world.add(1) is Code.OK
    assert changes == [False, True]
    assert admin.view.status_number() == 1


async def test_a_full_bookie_stays_read_only_whatever_is_requested(admin: Admin) -> None:
    admin.world.storage._health.is_writable = False
    assert await admin.json(READ_ONLY, "PUT", b'{"readOnly": false}') == {"readOnly": True}
    assert await admin.world.add(1) is Code.READ_ONLY


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"true",
        b'{"readOnly": 1}',
        b'{"readonly": true}',
        b"\xff",
        pytest.param(b"[" * BODY_BYTES_MAX, id="brackets"),
        pytest.param(b'{"readOnly":' * 340, id="braces"),
    ],
)
async def test_a_state_that_is_not_understood_changes_nothing(admin: Admin, body: bytes) -> None:
    status, _ = await admin.ask(READ_ONLY, "PUT", body)
    assert status == 400
    assert admin.world.storage.is_writable


async def test_garbage_is_collected_on_request(admin: Admin) -> None:
    await admin.world.new_ledger(1)
    await admin.world.new_ledger(2)
    await admin.world.stores.ledgers.delete(2)
    (before,) = await admin.json("/api/v1/bookie/gc_details")
    assert (before["collectionCounter"], before["lastCollectionTime"]) == (0, 0)
    answer = await admin.json(GC, "PUT")
    assert answer == "Triggered GC on BookieServer: b1"
    await admin.world.collector.collect()
    assert await admin.world.held() == [1]
    (after,) = await admin.json("/api/v1/bookie/gc_details")
    assert 1 <= after["collectionCounter"] <= 2
    assert after["lastCollectionIsWhole"]
    assert after["lastLedgersHeld"] in {1, 2}
    assert after["lastCollectionTime"] > 1_600_000_000_000
    assert not after["forceCompacting"]


@pytest.mark.parametrize(
    ("body", "percents"),
    [
        (b"", [80]),
        (b'{"forceMajor": true}', [80]),
        (b'{"forceMajor": false}', [20]),
        (b'{"forceMajor": false, "forceMinor": false}', []),
    ],
)
async def test_a_requested_collection_compacts_at_its_end(
    tmp_path: Path, body: bytes, percents: list[int]
) -> None:
    settings = {"compaction_major_percent": 80, "compaction_minor_percent": 20}
    async with an_admin(tmp_path / "b1", **settings) as admin:
        requested: list[int] = []
        compactor = admin.world.storage.compactor
        request = compactor.request

        def noted(live_percent: int = 100) -> None:
            assert admin.world.storage.counters.drops == 1, "after the pass"
            requested.append(live_percent)
            request(live_percent)

        compactor.request = noted
        assert await admin.world.add(1) is Code.OK  # the ledger is deleted
        await admin.json(GC, "PUT", body)
        await admin.world.collector.collect()
        assert requested == percents
        compactor.request = request
        await compactor.compact(0)
        (details,) = await admin.json("/api/v1/bookie/gc_details")
        major, minor = percents.count(80), percents.count(20)
        assert (details["majorCompactionCounter"], details["minorCompactionCounter"]) == (
            major, minor,
        )  # fmt: skip
        assert (details["lastMajorCompactionTime"] > 0) == bool(major)
        assert (details["lastMinorCompactionTime"] > 0) == bool(minor)
        assert not details["majorCompacting"]


@pytest.mark.parametrize("body", [b"[]", b'{"forceMajor": 1}', b"x"])
async def test_a_collection_that_is_not_understood_is_not_requested(
    admin: Admin, body: bytes
) -> None:
    assert (await admin.ask(GC, "PUT", body))[0] == 400
    assert not admin.world.collector.is_forced


async def test_a_running_compaction_shows_its_kind(admin: Admin) -> None:
    for percent, kind in ((80, "major"), (10, "minor")):
        admin.world.storage.compactor.running_percent = percent
        (details,) = await admin.json("/api/v1/bookie/gc_details")
        assert {name for name in ("major", "minor") if details[f"{name}Compacting"]} == {kind}


async def test_a_requested_pass_shows_until_it_ends(admin: Admin) -> None:
    assert await admin.json(GC) == {"is_in_force_gc": "false"}
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    listing = admin.world.collector._listing
    unlisted = listing.unlisted

    async def held_listing(ledger_ids: Any) -> Any:
        await held
        return await unlisted(ledger_ids)

    listing.unlisted = held_listing
    await admin.json(GC, "PUT")
    assert await admin.json(GC) == {"is_in_force_gc": "true"}
    held.set_result(None)
    await admin.world.collector.collect()
    assert await admin.json(GC) == {"is_in_force_gc": "false"}


async def test_the_state_of_a_bookie_has_the_names_of_bookkeeper(admin: Admin) -> None:
    path = "/api/v1/bookie/state"
    high = "availableForHighPriorityWrites"
    assert await admin.json(path) == {
        "running": True, "readOnly": False, "shuttingDown": False, high: True,
    }  # fmt: skip
    assert await admin.ask("/api/v1/bookie/is_ready") == (200, b"OK")
    admin.view.stop()
    state = await admin.json(path)
    assert (state["running"], state["shuttingDown"]) == (False, True)
    assert (await admin.ask("/api/v1/bookie/is_ready"))[0] == 503
    assert await admin.ask("/heartbeat") == (200, b"OK\n")


async def test_the_disk_is_that_of_the_directory(admin: Admin) -> None:
    info = await admin.json("/api/v1/bookie/info")
    assert info.keys() == {"freeSpace", "totalSpace"}
    assert 0 < info["freeSpace"] < info["totalSpace"]


async def test_there_is_no_mark_without_a_journal(admin: Admin) -> None:
    assert await admin.json("/api/v1/bookie/last_log_mark") == {}


async def test_settings_are_shown_without_secrets(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = await admin.json("/api/v1/config/server_config")
    assert shown.keys() == BookieSettings.model_fields.keys()
    assert shown["write_mode"] == "direct"

    def with_a_secret(_settings: object, **_: object) -> dict[str, str]:
        return {"session_secret": "abc", "port": "1"}

    monkeypatch.setattr(BookieSettings, "model_dump", with_a_secret)
    shown = await admin.json("/api/v1/config/server_config")
    assert shown == {"session_secret": "<hidden>", "port": "1"}


async def test_status_has_what_the_page_shows(admin: Admin) -> None:
    await admin.world.add(1, size=100)
    status = await admin.json("/api/v1/bookie/status")
    assert status["bookieId"] == "b1"
    written = admin.world.storage.counters.add_bytes
    assert status["metrics"]["bookie_WRITE_BYTES"] == written > 100
    quantile = 'bookie_journal_JOURNAL_SYNC{quantile="0.5",success="true"}'
    assert status["metrics"][quantile] is None, "NaN is not JSON"
    assert status.keys() >= {"state", "disk", "garbageCollection", "writeMode", "uptimeSeconds"}


async def test_the_repair_is_shown(admin: Admin) -> None:
    repair = await admin.json("/api/v1/bookie/repair")
    assert (repair["doubt"]["isOver"], repair["doubt"]["epoch"]) == (True, 0)
    assert repair["repairState"] == "nothing to do"
    await admin.world.storage.raise_doubt()
    admin.view.serving.repair.ledgers_left = 3
    status = await admin.json("/api/v1/bookie/status")
    assert (status["doubt"]["isOver"], status["repair"]["ledgersLeft"]) == (False, 3)


async def test_metrics_are_text(admin: Admin) -> None:
    status, text = await admin.ask(METRICS)
    assert status == 200
    assert b"bookie_WRITE_BYTES 0.0" in text
    assert self_described(admin.headers["Content-Type"])


def self_described(content_type: str) -> bool:
    return content_type.startswith("text/plain; version=")


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/api/v1/bookie", "/api/v1/bookie/gc/"])
async def test_an_unknown_path_is_not_found(admin: Admin, path: str) -> None:
    assert (await admin.ask(path))[0] == 404


@pytest.mark.parametrize("path", [METRICS, *ROUTES])
async def test_every_other_method_is_refused_and_the_right_ones_are_named(
    admin: Admin, path: str
) -> None:
    allowed = set(ROUTES.get(path, {"GET": None}))
    for method in ("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "X"):
        if method not in allowed:
            status, _ = await admin.ask(path, method, b"{}")
            assert status == 405, method
            assert set(admin.headers["Allow"].split(", ")) - {"HEAD"} == allowed
    assert admin.world.storage.is_writable


@pytest.mark.parametrize("path", ROUTES)
async def test_a_head_request_has_the_headers_of_get_alone(admin: Admin, path: str) -> None:
    status, body = await admin.ask(path)
    length = admin.headers["Content-Length"]
    assert (status, int(length)) == (200, len(body))
    assert await admin.ask(path, "HEAD") == (200, b"")
    assert abs(int(admin.headers["Content-Length"]) - int(length)) < 100, "numbers change"
    assert admin.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(("path", "method"), CHANGES)
async def test_changes_need_the_setting(tmp_path: Path, path: str, method: str) -> None:
    async with an_admin(tmp_path / "b1", admin_changes=False) as admin:
        status, text = await admin.ask(path, method, b'{"readOnly": true}')
        assert status == 403
        assert b"--admin-changes" in text
        assert admin.world.storage.is_writable
        assert not admin.world.collector.is_forced
        assert (await admin.ask(path))[0] == 200


@pytest.mark.parametrize(("path", "method"), CHANGES)
async def test_a_stopping_bookie_changes_nothing(admin: Admin, path: str, method: str) -> None:
    admin.view.stop()
    status, _ = await admin.ask(path, method, b'{"readOnly": true}')
    assert status == 503
    assert admin.world.storage.is_writable
    assert not admin.world.collector.is_forced


def test_a_bookie_that_starts_shows_what_there_is(tmp_path: Path) -> None:
    async def statuses() -> dict[str, int]:
        view = BookieView(BookieSettings(directories=(tmp_path,), admin_changes=True), "b1")
        starting = Admin(view, None)
        return {path: (await starting.ask(path))[0] for path in [*ROUTES, METRICS]}

    found = asyncio.run(statuses())
    early = {path for path, status in found.items() if status == 200}
    assert early == {
        "/", "/heartbeat", "/api/v1/bookie/state", READ_ONLY, "/api/v1/config/server_config",
    }  # fmt: skip
    assert {status for path, status in found.items() if path not in early} == {503}


async def test_a_change_that_the_loop_does_not_make_in_time_is_never_made(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled: list[Any] = []
    loop = type("Busy", (), {"call_soon_threadsafe": lambda _self, run: scheduled.append(run)})
    monkeypatch.setattr(admin.view, "_loop", loop())
    monkeypatch.setattr(view_module, "CHANGE_SECONDS_MAX", 0.0)
    status, text = await admin.ask(READ_ONLY, "PUT", b'{"readOnly": true}')
    assert (status, text) == (503, b"Bookie did not answer in time\n")
    scheduled[0]()
    assert admin.world.storage.is_writable


async def test_a_body_has_a_bound(admin: Admin) -> None:
    fits = b'{"readOnly": true}'.ljust(BODY_BYTES_MAX)
    assert (await admin.ask(READ_ONLY, "PUT", fits + b" "))[0] == 413
    assert admin.world.storage.is_writable
    assert (await admin.ask(READ_ONLY, "PUT", fits))[0] == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "x", "\u0663", "9" * 4_000])
async def test_a_length_that_is_no_number_is_refused(admin: Admin, length: str) -> None:
    status, _ = await admin.ask(READ_ONLY, "PUT", b"{}", CONTENT_LENGTH=length)
    assert status in {411, 413}


async def test_a_body_in_chunks_or_too_short_is_refused(admin: Admin) -> None:
    chunks = await admin.ask(READ_ONLY, "PUT", b"{}", HTTP_TRANSFER_ENCODING="chunked")
    assert chunks[0] == 411
    body = b'{"readOnly": true}'
    assert (await admin.ask(READ_ONLY, "PUT", body, CONTENT_LENGTH="19"))[0] == 400
    assert admin.world.storage.is_writable


async def test_zeros_before_a_length_do_not_hide_the_body(admin: Admin) -> None:
    body = b'{"readOnly": true}'
    status, _ = await admin.ask(READ_ONLY, "PUT", body, CONTENT_LENGTH=f"{len(body):020d}")
    assert status == 200
    assert not admin.world.storage.is_writable


async def test_a_compaction_is_minor_if_there_are_no_major_ones(tmp_path: Path) -> None:
    settings = {"compaction_major_percent": 0, "compaction_minor_percent": 20}
    async with an_admin(tmp_path / "b1", **settings) as admin:
        await admin.world.storage.compactor.compact(20)
        (details,) = await admin.json("/api/v1/bookie/gc_details")
        assert (details["majorCompactionCounter"], details["minorCompactionCounter"]) == (0, 1)
        admin.world.storage.compactor.running_percent = 20
        (details,) = await admin.json("/api/v1/bookie/gc_details")
        assert (details["majorCompacting"], details["minorCompacting"]) == (False, True)


async def test_a_refused_method_names_head_wherever_it_is_answered(admin: Admin) -> None:
    for path, allowed in (("/heartbeat", "GET, HEAD"), (GC, "GET, PUT, HEAD"), (METRICS, "GET")):
        assert (await admin.ask(path, "POST"))[0] == 405
        assert admin.headers["Allow"] == allowed


async def test_the_largest_requested_compaction_runs_after_a_pass_that_began_later(
    admin: Admin,
) -> None:
    began, held, compacts = asyncio.Event(), asyncio.Event(), asyncio.Event()
    listing = admin.world.collector._listing
    unlisted = listing.unlisted
    passes = 0

    async def held_listing(ledger_ids: Any) -> Any:
        nonlocal passes
        passes += 1
        began.set()
        await held.wait()
        return await unlisted(ledger_ids)

    listing.unlisted = held_listing
    requested: list[tuple[int, int]] = []

    def request(live_percent: int = 100) -> None:
        requested.append((live_percent, passes))
        compacts.set()

    admin.world.storage.compactor.request = request
    first = asyncio.ensure_future(admin.world.collector.collect())
    await began.wait()
    await admin.json(GC, "PUT")
    await admin.json(GC, "PUT", b'{"forceMajor": false}')
    held.set()
    await first
    await compacts.wait()
    assert requested == [(80, 2)]


async def test_requests_for_passes_postpone_no_compaction(admin: Admin) -> None:
    """During each pass, another client requests the next one."""
    collector, compactor = admin.world.collector, admin.world.storage.compactor
    unlisted = collector._listing.unlisted
    passes = 0

    async def listing(ledger_ids: Any) -> Any:
        nonlocal passes
        passes += 1
        collector.request()
        return await unlisted(ledger_ids)

    requested: list[int] = []

    def request(live_percent: int = 100) -> None:
        requested.append(live_percent)

    collector._listing.unlisted = listing
    compactor.request = request
    await admin.json(GC, "PUT")
    while passes < 50 and not requested:
        await collector.collect()
    assert requested == [80]
    collector.stop()
