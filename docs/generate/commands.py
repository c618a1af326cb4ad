"""Writes the reference of the command line from the definitions of the commands."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from bookie_server.__main__ import settings_parser
from docs.generate.markdown import code, table
from ledgerlog_spark.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION = """\
# Command line

`ledgerlog GROUP COMMAND --help` prints the same text in a terminal. Most commands accept `--json`.

Exit codes: 0 success; 1 failed, and the command certainly had no effect; 2 wrong usage, or the
directory of a bookie cannot be used; 3 the outcome is unknown; 4 failed, but the same command may
succeed later; 130 interrupted. `ledgerlog bookie run` has
[other exit codes](settings.md#exit-codes).

"""

COMPLETION = {"install_completion", "show_completion"}


def commands() -> dict[str, Any]:
    """Return all commands, without groups of commands; the key is its words, as `logs append`."""
    return dict(_walk(get_command(app), ()))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words), command
        return
    for name, each in inner.items():
        yield from _walk(each, (*words, name))


def options_of(words: str, command: Any) -> list[tuple[str, str, str]]:
    """Return the spelling, the default and the meaning of each option of a command."""
    if words == "bookie run":  # this command has the options of the bookie process
        return [
            (", ".join(f"`{name}`" for name in action.option_strings), "", action.help or "")
            for action in settings_parser()._actions  # noqa: SLF001 - there is no public list
        ]
    return [
        (_spelling(each), _default(each), each.help or "")
        for each in command.params
        if each.param_type_name == "option" and each.name not in COMPLETION
    ]


def arguments_of(command: Any) -> list[tuple[str, str]]:
    """Return the name and the meaning of each argument of a command."""
    return [
        (code(each.metavar or str(each.name).upper()), each.help or "")
        for each in command.params
        if each.param_type_name == "argument"
    ]


def _spelling(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return names if option.is_flag or not option.metavar else f"{names} `{option.metavar}`"


def _default(option: Any) -> str:
    if option.default in {None, ""} or option.is_flag or callable(option.default):
        return "required" if option.required else ""
    return code(option.default)


def _usage(words: str, command: Any) -> str:
    arguments = [
        name if each.required else f"[{name}]"
        for each in command.params
        if each.param_type_name == "argument"
        for name in [each.metavar or str(each.name).upper()]
    ]
    return " ".join(["ledgerlog", words, "[OPTIONS]", *arguments])


def _section(words: str, command: Any) -> str:
    described = re.sub(r"\s*\f.*", "", inspect.cleandoc(command.help or ""), flags=re.DOTALL)
    parts = [
        f"### ledgerlog {words}\n",
        f"```text\n{_usage(words, command)}\n```\n",
        described + "\n",
    ]
    if arguments := arguments_of(command):
        parts.append(table(("argument", "meaning"), arguments))
    if options := options_of(words, command):
        parts.append(table(("option", "default", "meaning"), options))
    if epilog := " ".join((command.epilog or "").split()):
        parts.append(f"Example: `{epilog.removeprefix('Example: ')}`\n")
    return "\n".join(parts)


def page() -> str:
    """Return the page about all commands."""
    parts = [INTRODUCTION]
    group = None
    for words, command in commands().items():
        first = words.partition(" ")[0]
        if first != group:
            group = first
            above = get_command(app).commands[first]  # type: ignore[attr-defined]
            summary = "" if above is command else f"{(above.help or '').splitlines()[0]}\n\n"
            parts.append(f"## {first}\n\n{summary}")
        parts.append(_section(words, command) + "\n")
    return "".join(parts)
