"""Writes the reference of the settings of a bookie and of a client."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from bookie_server.config import BookieSettings
from bookie_server.errors import ExitCode
from docs.generate.docstrings import attributes
from docs.generate.markdown import code, table, thousands
from ledgerlog_spark.client.settings import ClientSettings

BOOKIE = """\
# Settings of a bookie

A setting has four sources, in this order: a command-line option (`--gc-interval-ms 60000`), an
environment variable (`LEDGERLOG_GC_INTERVAL_MS=60000`), a key of the TOML file that `--config`
names (`gc_interval_ms = 60000`), and the default. The first source with a value is used. An unknown
key is an error. A list of directories in the environment is separated by commas:
`LEDGERLOG_DIRECTORIES=/data/b1,/data/b2`. The command-line option of `directories` is
`--directory`, which is repeated for each directory.

"""

EXITS = {
    ExitCode.STOPPED: "stopped by SIGTERM or SIGINT",
    ExitCode.INTERNAL_ERROR: "a bug",
    ExitCode.BAD_CONFIGURATION: "a setting is wrong",
    ExitCode.REFUSED_TO_START: "the bookie refuses to start: its directory belongs to another bookie, is "
    "locked or damaged, or a port is in use",
    ExitCode.METADATA_UNAVAILABLE: "ZooKeeper cannot be reached",
    ExitCode.STORAGE_FAILED: "the disk failed",
}

CLIENT = """\
# Settings of a client

Pass the settings to a client: `ll.connect(uri, settings=ll.ClientSettings(read_timeout_ms=2_000))`. All times are in
milliseconds, and all sizes are in bytes.

"""

HELD = """\
Objects of the following classes are values of the settings above. The tables above list the defaults of these settings.

"""


def bookie_page() -> str:
    """Return the page about a bookie's settings and exit codes."""
    meanings = attributes(BookieSettings)
    rows = []
    for name, setting in BookieSettings.model_fields.items():
        default = "required" if setting.is_required() else thousands(setting.default)
        rows.append((code(name), default, meanings[name]))
    exits = [(str(int(each)), meaning) for each, meaning in EXITS.items()]
    return (
        f"{BOOKIE}{table(('setting', 'default', 'meaning'), rows)}\n"
        f"## Exit codes\n\n{table(('code', 'meaning'), exits)}"
    )


def client_settings() -> list[tuple[type[Any], str]]:
    """Return the classes of a client's settings and their attributes; `ClientSettings` is first."""
    return [(ClientSettings, "")] + [
        (type(value), each.name)
        for each in fields(ClientSettings)
        if is_dataclass(value := getattr(ClientSettings(), each.name))
    ]


def held_classes() -> list[type[Any]]:
    """Return the classes that are values of several settings, such as `RetryPolicy`, each once."""
    found: dict[type[Any], None] = {}
    for described, holder in client_settings()[1:]:
        settings = getattr(ClientSettings(), holder)
        values = (getattr(settings, each.name) for each in fields(described))
        found |= {type(value): None for value in values if is_dataclass(value)}
    return list(found)


def client_page() -> str:
    """Return the page about a client's settings."""
    parts = [CLIENT]
    for described, holder in client_settings():
        value = getattr(ClientSettings(), holder) if holder else ClientSettings()
        meanings = attributes(described)
        rows = [
            (code(each.name), _default(getattr(value, each.name)), meanings[each.name])
            for each in fields(described)
        ]
        title = f"`{holder}`: {described.__name__}" if holder else described.__name__
        parts.append(f"## {title}\n\n{table(('setting', 'default', 'meaning'), rows)}\n")
    parts.append(HELD)
    for described in held_classes():
        meanings = attributes(described)
        settings = [(code(each.name), meanings[each.name]) for each in fields(described)]
        parts.append(f"## {described.__name__}\n\n{table(('setting', 'meaning'), settings)}\n")
    return "".join(parts)


def _default(value: object) -> str:
    if not is_dataclass(value):
        return thousands(value)
    inner = (f"{each.name}={getattr(value, each.name):,}" for each in fields(value))
    return f"`{type(value).__name__}({', '.join(inner)})`" if _is_flat(value) else "below"


def _is_flat(value: Any) -> bool:
    return all(isinstance(getattr(value, each.name), int | float) for each in fields(value))
