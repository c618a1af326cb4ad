"""Settings of a bookie: their precedence, and the errors of wrong values."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from bookie_server.__main__ import settings_parser
from bookie_server.config import BookieSettings, load_settings
from bookie_server.core.settings import ModeSettings, StorageSettings
from ledgerlog_spark.errors import ConfigurationError


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "GRPC_PORT", "DIRECTORIES", "METADATA_SERVICE_URI", "INSECURE"):
        monkeypatch.delenv(f"LEDGERLOG_{name}", raising=False)


def _toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "bookie.toml"
    path.write_text(text)
    return path


def test_command_line_wins_over_environment_over_file_over_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _toml(
        tmp_path, 'directories = ["/data"]\nport = 1\ngrpc_port = 2\nconnections_max = 3\n'
    )
    monkeypatch.setenv("LEDGERLOG_PORT", "11")
    monkeypatch.setenv("LEDGERLOG_GRPC_PORT", "12")
    settings = load_settings(config, {"port": "21"})
    assert (settings.port, settings.grpc_port, settings.connections_max) == (21, 12, 3)
    assert settings.bind_address == "127.0.0.1"


def test_a_limit_has_one_default() -> None:
    of_storage = {field.name: field.default for field in fields(StorageSettings)}
    of_mode = {field.name: field.default for field in fields(ModeSettings)}
    explained = of_mode.keys() & BookieSettings.model_fields
    assert of_mode.keys() - explained == {"checkpoint_bytes"}
    for name in explained - {"journal_directory"}:
        assert of_mode[name] == BookieSettings.model_fields[name].default
    shared = of_storage.keys() & BookieSettings.model_fields
    of_background = {name for name in shared if name.startswith(("compaction_", "scrub_"))}
    assert len(of_background) == 7
    defaulted = of_background | {"release_wait_ms"}
    for name in defaulted:
        assert of_storage[name] == BookieSettings.model_fields[name].default
    shared -= defaulted
    assert shared == {"file_size_bytes", "free_bytes_min", "in_flight_bytes_max"}
    assert {of_storage[name] for name in (*shared, "open_files_max")} == {MISSING}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({}, ["directories", "missing", "--directory,", "LEDGERLOG_DIRECTORIES"]),
        ({"prot": 3181}, ["unknown setting prot", "3181", "port"]),
        ({"port": "many"}, ["port", "'many'"]),
        ({"port": 70_000}, ["port", "70000", "65535"]),
        ({"in_flight_bytes_max": -1}, ["in_flight_bytes_max", "-1"]),
        ({"stall_timeout_ms": 0}, ["stall_timeout_ms", "0"]),
        ({"bookie_id": "../b1"}, ["bookie_id", "../b1"]),
        ({"bookie_id": "readonly"}, ["bookie_id", "readonly"]),
        ({"bind_address": "0.0.0.0"}, ["0.0.0.0", "--insecure", "127.0.0.1"]),
        ({"bind_address": "0.0.0.0", "insecure": True}, ["0.0.0.0", "advertised_address"]),
        ({"bind_address": "somewhere"}, ["bind_address", "IP address"]),
        ({"port": 0}, ["port 0", "bookie_id"]),
        ({"disk_usage_max": 0.8}, ["disk_usage_warn is 0.9", "disk_usage_max 0.8"]),
        ({"disk_usage_low_water": 0.96}, ["disk_usage_low_water is 0.96", "disk_usage_max 0.95"]),
        ({"disk_usage_max": 1.5}, ["disk_usage_max", "1.5"]),
        ({"port": 3181, "grpc_port": 3181}, ["grpc_port", "3181"]),
        (
            {"in_flight_bytes_max": 1 << 27},
            ["in_flight_bytes_max", "connections_max"],
        ),
        (
            {"frame_size_bytes_max": 1 << 24},
            ["18 times frame_size_bytes_max"],
        ),
        (
            {
                "write_mode": "journal",
                "journal_directory": "/journal",
                "file_size_bytes": 1 << 23,
                "frame_size_bytes_max": 6_000_000,
            },
            ["file_size_bytes is 8388608", "at least 9000000", "frame_size_bytes_max 6000000"],
        ),
        ({"write_mode": "safe"}, ["write_mode", "safe", "unjournaled"]),
        ({"write_mode": "journal"}, ["write_mode journal needs a journal_directory"]),
        (
            {"journal_directory": "/journal"},
            ["journal_directory is set", "write_mode is direct", "set write_mode to journal"],
        ),
        (
            {"write_mode": "unjournaled", "journal_sync_data": False},
            ["journal_sync_data is false", "write_mode is not journal"],
        ),
        (
            {"write_mode": "journal", "journal_directory": "/data/"},
            ["journal_directory must not be the directory of the entries"],
        ),
        ({"write_mode": "journal", "journal_files": 1}, ["journal_files", "1"]),
        ({"log_level": "loud"}, ["log_level", "loud"]),
        ({"directories": []}, ["directories", "1 to 16 directories"]),
        ({"directories": [f"/{number}" for number in range(17)]}, ["1 to 16 directories"]),
        ({"directories": ["/a", "/b", "/a"]}, ["directory /a is listed twice"]),
        ({"directories": ["/b/a", "/b"]}, ["directory /b/a is inside another directory"]),
        (
            {"directories": ["/a", "/b"], "allow_lost_directory": True},
            ["allow_lost_directory is only for a bookie with one directory"],
        ),
        ({"without_directories": ["/data"]}, ["without_directories has all directories"]),
        (
            {"directories": ["/a", "/b"], "write_mode": "journal", "journal_directory": "/j"},
            ["journal_directory has 1 directories", "directories has 2", "in the same order"],
        ),
        (
            {
                "directories": ["/a", "/b"],
                "write_mode": "journal",
                "journal_directory": "/j,/j/",
            },
            ["journal_directory has a directory twice"],
        ),
    ],
)
def test_wrong_setting_is_refused_by_name_and_value(
    overrides: dict[str, object], words: list[str]
) -> None:
    given = {"directories": ["/data"], **overrides} if overrides else {}
    with pytest.raises(ConfigurationError) as refused:
        load_settings(None, given)
    for word in words:
        assert word in str(refused.value)


def test_a_link_to_the_directory_of_the_entries_is_no_journal_directory(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "journal").symlink_to(tmp_path / "data")
    with pytest.raises(ConfigurationError, match="must not be the directory of the entries"):
        load_settings(
            None,
            {
                "directories": [tmp_path / "data"],
                "write_mode": "journal",
                "journal_directory": tmp_path / "journal",
            },
        )


def test_unknown_key_in_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown setting flush_interval = 7"):
        load_settings(_toml(tmp_path, 'directories = ["/data"]\nflush_interval = 7\n'))


def test_file_that_is_not_toml_is_refused_with_its_path(tmp_path: Path) -> None:
    config = _toml(tmp_path, "port: 3181")
    with pytest.raises(ConfigurationError) as refused:
        load_settings(config)
    assert str(config) in str(refused.value)


def test_file_that_does_not_exist_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml cannot be read"):
        load_settings(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("text", ["/a,/b", "/a, /b,", '["/a", "/b"]'])
def test_a_list_in_the_environment_is_separated_by_commas_or_json(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("LEDGERLOG_DIRECTORIES", text)
    assert load_settings().directories == (Path("/a"), Path("/b"))


def test_list_in_the_environment_that_is_not_json_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEDGERLOG_DIRECTORIES", '["/data"')
    with pytest.raises(ConfigurationError, match="JSON"):
        load_settings()


def test_a_directory_on_the_command_line_may_have_a_comma() -> None:
    given = settings_parser().parse_args(
        ["-d", "/a,b", "--directory", "/c", "--without-directory", "/c"]
    )
    settings = load_settings(
        None,
        {"directories": given.directories, "without_directories": given.without_directories},
    )
    assert settings.directories == (Path("/a,b"), Path("/c"))
    assert [place.path for place in settings.places] == [Path("/a,b")]


def test_each_directory_has_the_journal_at_the_same_place_of_the_list() -> None:
    settings = load_settings(
        None,
        {
            "directories": ["/a", "/b"],
            "journal_directory": ["/j1", "/j2"],
            "write_mode": "journal",
            "without_directories": ["/a"],
        },
    )
    assert settings.places == ((Path("/b"), Path("/j2")),)


def test_wider_address_is_allowed_with_insecure() -> None:
    settings = load_settings(
        None,
        {
            "directories": ["/data"],
            "bind_address": "0.0.0.0",
            "insecure": True,
            "advertised_address": "bookie-1.example",
        },
    )
    assert settings.host == "bookie-1.example"


def test_every_option_of_the_command_says_what_it_means() -> None:
    for action in settings_parser()._actions:
        assert action.help, action.option_strings
        assert not action.help.startswith("Default"), action.option_strings


def test_short_options_are_those_of_the_other_commands(tmp_path: Path) -> None:
    given = settings_parser().parse_args(["-d", str(tmp_path), "-u", "zk://h:1/ledgers"])
    assert given.directories == [tmp_path]
    assert given.metadata_service_uri == "zk://h:1/ledgers"
