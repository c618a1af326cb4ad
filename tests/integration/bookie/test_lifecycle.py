"""A bookie process from its start to its end: stored entries, and refused starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import urllib.request
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from ledgerlog_spark.metadata.stores import open_metadata
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import AddAnswer, AddRunAnswer
from ledgerlog_spark.wire.requests import encode_read
from tests.fixtures.bookie_process import KEY, add_frame, add_run_frame, stored_entry
from tests.fixtures.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess

    MakeBookie = Callable[..., BookieProcess]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

STOPPED, BAD_CONFIGURATION, REFUSED, NO_METADATA, DISK_FAILED = 0, 2, 3, 4, 5


def _registered(service_uri: str) -> Callable[[], Awaitable[tuple[list[str], list[str]]]]:
    async def look() -> tuple[list[str], list[str]]:
        stores = await open_metadata(service_uri)
        try:
            registration = stores.registration
            return list(await registration.writable()), list(await registration.read_only())
        finally:
            await stores.close()

    return look


def test_ready_line_names_id_ports_and_process(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    assert bookie.process is not None
    assert bookie.ready == {
        "bookie_id": f"127.0.0.1:{bookie.port}",
        "port": bookie.port,
        "grpc_port": bookie.grpc_port,
        "pid": bookie.process.pid,
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_a_bookie_cleanly_and_its_entries_stay(
    make_bookie: MakeBookie, number: int
) -> None:
    bookie = make_bookie().start()
    with bookie.peer() as peer:
        for entry_id in range(20):
            assert peer.ask(add_frame(1, entry_id, b"x" * 10_000)).code is Code.OK
    assert bookie.stop(number) == STOPPED
    bookie.start()
    with bookie.peer() as peer:
        for entry_id in range(20):
            assert peer.read(encode_read(1, entry_id)) == stored_entry(1, entry_id, b"x" * 10_000)


def test_requests_accepted_before_a_stop_are_answered(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"first")).code is Code.OK
        peer.send(*(add_frame(1, entry_id, bytes(50_000)) for entry_id in range(1, 40)))
        first = peer.answer()
        assert isinstance(first, AddAnswer)
        assert bookie.stop() == STOPPED
        answered = [first.entry_id]
        while (body := peer.body()) is not None:
            assert body[4:8] == bytes(4)
            answered.append(int.from_bytes(body[16:24], "big"))
    bookie.start()
    with bookie.peer() as peer:
        for entry_id in answered:
            assert peer.ask(encode_read(1, entry_id)).code is Code.OK


def test_killed_bookie_keeps_what_it_acknowledged_and_its_fences(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    acknowledged: list[int] = []
    with bookie.peer() as peer:
        assert peer.ask(encode_read(2, -1, fence_key=KEY)).code.is_absent
        for first in range(0, 4_000, 100):
            peer.send(add_run_frame(1, range(first, first + 100), b"k" * 500, request_id=first))
        for _ in range(25):
            answer = peer.answer()
            assert isinstance(answer, AddRunAnswer)
            assert answer.code is Code.OK
            acknowledged += range(answer.first_entry_id, answer.first_entry_id + 100)
        bookie.kill()
    assert acknowledged
    bookie.start()
    with bookie.peer() as peer:
        for entry_id in acknowledged:
            assert peer.read(encode_read(1, entry_id)) == stored_entry(1, entry_id, b"k" * 500)
        assert peer.ask(add_frame(2, 0, b"late")).code is Code.FENCED


async def test_bookie_is_announced_while_it_serves(
    make_bookie: MakeBookie, service_uri: str
) -> None:
    look = _registered(service_uri)
    bookie = make_bookie(bookie_id="bookie-7").start()
    assert await look() == (["bookie-7"], [])
    stores = await open_metadata(service_uri)
    try:
        info = await stores.registration.info("bookie-7")
        assert (info.host, info.port, info.grpc_port) == (
            "127.0.0.1",
            bookie.port,
            bookie.grpc_port,
        )
        assert info.takes_runs
    finally:
        await stores.close()
    bookie.stop()
    assert await look() == ([], [])


async def test_bookie_killed_and_started_again_is_announced_again(
    make_bookie: MakeBookie, service_uri: str
) -> None:
    bookie = make_bookie().start()
    bookie.kill()
    bookie.start()
    assert await _registered(service_uri)() == ([f"127.0.0.1:{bookie.port}"], [])


async def test_killed_bookie_does_not_wait_for_the_end_of_its_old_session(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    """The old session would live for two minutes, much longer than a test waits for a start."""
    with ZooKeeperProcess(tmp_path / "zookeeper", tick_time_ms=60_000) as zookeeper:
        uri = zookeeper.service_uri
        bookie = make_bookie(service_uri=uri, session_timeout_ms=120_000).start()
        bookie.kill()
        bookie.start()
        assert await _registered(uri)() == ([f"127.0.0.1:{bookie.port}"], [])
        bookie.kill()


async def test_full_disk_makes_a_bookie_read_only_and_recovery_still_works(
    make_bookie: MakeBookie, service_uri: str
) -> None:
    bookie = make_bookie().start()
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"while there was room")).code is Code.OK
    bookie.stop()
    bookie.settings["free_bytes_min"] = 1 << 60
    bookie.start()
    assert await _registered(service_uri)() == ([], [f"127.0.0.1:{bookie.port}"])
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 1, b"no")).code is Code.READ_ONLY
        assert peer.ask(encode_read(1, 0)).code is Code.OK
        assert peer.ask(encode_read(1, -1, fence_key=KEY)).code is Code.OK
        assert peer.ask(add_frame(1, 1, b"recovered", flags=6)).code is Code.OK


def test_second_instance_on_a_directory_is_refused(make_bookie: MakeBookie) -> None:
    first = make_bookie("b1").start()
    code, message = make_bookie("b1").refusal()
    assert code == REFUSED
    assert f"{first.directory} is in use by another bookie process" in message
    with first.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"x")).code is Code.OK


def test_directory_of_another_bookie_is_refused_with_the_exact_path(
    make_bookie: MakeBookie,
) -> None:
    first = make_bookie("b1").start()
    first.stop()
    code, message = make_bookie("b1").refusal()
    assert code == REFUSED
    assert "belongs to another bookie" in message
    assert str(first.directory / "VERSION") in message
    first.start()


def test_directory_of_another_cluster_is_refused(make_bookie: MakeBookie, service_uri: str) -> None:
    first = make_bookie("b1").start()
    first.stop()
    stranger = make_bookie("b1", service_uri=service_uri + "-other", port=first.port)
    code, message = stranger.refusal()
    assert code == REFUSED
    assert "belongs to another cluster" in message
    assert not asyncio.run(has_cluster(service_uri + "-other"))


async def has_cluster(uri: str) -> bool:
    stores = await open_metadata(uri)
    try:
        return await stores.registration.has_cluster()
    finally:
        await stores.close()


def test_port_in_use_is_refused_by_number(make_bookie: MakeBookie) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, message = make_bookie(port=port).refusal()
    assert code == REFUSED
    assert f"port {port} on 127.0.0.1 is in use" in message
    assert "another port" in message


@pytest.mark.parametrize(
    ("setting", "name"), [("grpc_port", "gRPC port"), ("metrics_port", "metrics port")]
)
def test_other_port_in_use_is_refused_by_number_and_the_id_stays_free(
    make_bookie: MakeBookie, setting: str, name: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = make_bookie("b1", bookie_id="bookie-1", **{setting: port})
        code, message = refused.refusal()
    assert code == REFUSED
    assert f"{name} {port} on 127.0.0.1 is in use" in message
    assert f"another {setting}" in message
    assert not (refused.directory / "VERSION").exists()
    make_bookie("b2", bookie_id="bookie-1").start()


def test_bookie_serves_on_the_ports_it_claimed(make_bookie: MakeBookie) -> None:
    grpc_port, metrics_port = free_port(), free_port()
    bookie = make_bookie(grpc_port=grpc_port, metrics_port=metrics_port).start()
    for start in range(2):
        assert bookie.grpc_port == grpc_port
        bookie.collect()
        with bookie.peer() as peer:
            for ledger_id in range(3 * start, 3 * start + 3):
                assert peer.ask(add_frame(ledger_id, 0, b"x")).code is Code.OK
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics") as answer:
            metrics = answer.read()
        assert b"bookie_SERVER_STATUS 1.0" in metrics
        # Those of the first start were deleted, but the bookie remembers them.
        assert b"ledgerlog_bookie_ledgers %d.0" % (3 * start + 3) in metrics
        bookie.stop()
        bookie.start()


def test_second_bookie_with_the_same_id_is_refused_and_the_first_serves(
    make_bookie: MakeBookie,
) -> None:
    first = make_bookie("b1", bookie_id="bookie-1").start()
    code, message = make_bookie("b2", bookie_id="bookie-1").refusal()
    assert code == REFUSED
    assert "bookie-1" in message
    with first.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"x")).code is Code.OK


def test_zookeeper_that_is_down_is_named_after_a_bounded_wait(make_bookie: MakeBookie) -> None:
    port = free_port()
    bookie = make_bookie(service_uri=f"zk://127.0.0.1:{port}/ledgers", metadata_wait_ms=700)
    code, message = bookie.refusal()
    assert code == NO_METADATA
    assert f"127.0.0.1:{port}" in message


def test_wrong_service_uri_is_a_bad_setting(make_bookie: MakeBookie) -> None:
    code, message = make_bookie(service_uri="http://127.0.0.1/ledgers").refusal()
    assert code == BAD_CONFIGURATION
    assert "http" in message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bind_address": "0.0.0.0"}, ["0.0.0.0", "--insecure"]),
        ({"file_size_bytes": "big"}, ["file_size_bytes", "'big'"]),
    ],
)
def test_bad_setting_is_refused_by_name_and_value(
    make_bookie: MakeBookie, settings: dict[str, object], words: list[str]
) -> None:
    code, message = make_bookie(**settings).refusal()
    assert code == BAD_CONFIGURATION
    assert all(word in message for word in words)


def test_bookie_serves_while_zookeeper_is_away_and_is_back_after_it(
    make_bookie: MakeBookie, own_zookeeper: ZooKeeperProcess
) -> None:
    bookie = make_bookie(service_uri=own_zookeeper.service_uri).start()
    own_zookeeper.stop()
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"without")).code is Code.OK
        assert peer.ask(encode_read(1, 0)).code is Code.OK
    own_zookeeper.start()
    assert bookie.stop() == STOPPED


async def test_bookie_whose_session_was_lost_is_announced_again(
    make_bookie: MakeBookie, service_uri: str
) -> None:
    bookie = make_bookie().start()
    assert bookie.process is not None
    stores = await open_metadata(service_uri)
    changed = asyncio.Event()
    cancel = stores.registration.watch_writable(changed.set)
    try:

        async def until(announced: list[str]) -> None:
            async with asyncio.timeout(30):
                while True:
                    changed.clear()
                    if list(await stores.registration.writable()) == announced:
                        return
                    await changed.wait()

        bookie.process.send_signal(signal.SIGSTOP)
        await until([])
        bookie.process.send_signal(signal.SIGCONT)
        await until([f"127.0.0.1:{bookie.port}"])
    finally:
        cancel()
        await stores.close()


def test_disk_that_fails_ends_the_bookie_and_loses_nothing_acknowledged(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie().start()
    assert bookie.process is not None
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"acknowledged")).code is Code.OK
        # From here on every write beyond the first 64 KiB of a file fails, as on a bad disk.
        resource.prlimit(bookie.process.pid, resource.RLIMIT_FSIZE, (65_536, 65_536))
        peer.send(add_frame(1, 1, bytes(100_000)))
        body = peer.body()
        assert body is None or int.from_bytes(body[4:8], "big") == 101
    assert bookie.process.wait(30) == DISK_FAILED
    bookie.stop()
    assert "storage_failed" in bookie.log()
    bookie.start()
    with bookie.peer() as peer:
        assert peer.read(encode_read(1, 0)) == stored_entry(1, 0, b"acknowledged")
        assert peer.ask(encode_read(1, 1)).code is Code.NO_ENTRY


def test_bookie_serves_and_stops_while_nobody_reads_its_log(make_bookie: MakeBookie) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(65_536))
    os.set_blocking(writing, True)
    bookie = make_bookie(log_level="debug")
    bookie.standard_error = writing
    try:
        bookie.start()
        for _ in range(10):
            with bookie.peer() as stranger:
                stranger.send(b"\xff" * 64)  # for which the bookie writes a line
                assert stranger.is_closed()
        with bookie.peer() as peer:
            assert peer.ask(add_frame(1, 0, b"first")).code is Code.OK
        bookie.collect()
        assert bookie.stop() == STOPPED
    finally:
        bookie.kill()
        os.close(reading)
        os.close(writing)


def test_closed_standard_streams_do_not_give_their_numbers_to_files(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie()
    bookie.launcher = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh"]
    bookie.start()
    with bookie.peer() as stranger:
        stranger.send(b"\xff" * 64)
        assert stranger.is_closed()
    opened = Path(f"/proc/{bookie.ready['pid']}/fd")
    assert [str((opened / name).readlink()) for name in ("0", "2")] == [os.devnull] * 2
    assert bookie.stop() == STOPPED
