"""The page about BookKeeper's shell: each of its commands is there, and each of ours exists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from docs.generate.commands import commands, options_of
from tests.fixtures.command_line import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "how-to" / "bookkeeper-shell.md"

SHELL = """
    activeledgers, autorecovery, bookieformat, bookieinfo, bookiesanity, check-db-ledgers-index,
    clusterinfo, convert-to-db-storage, convert-to-interleaved-storage, cookie_create,
    cookie_delete, cookie_generate, cookie_get, cookie_update, decommissionbookie, deleteledger,
    endpointinfo, forceauditchecks, help, initbookie, initnewcluster, lastmark, ledger,
    ledgermetadata, listbookies, listfilesondisc, listledgers, listunderreplicated,
    localconsistencycheck, lostbookierecoverydelay, metaformat, nukeexistingcluster,
    queryautorecoverystatus, readjournal, readledger, readlog, readlogmetadata,
    rebuild-db-ledger-locations-index, rebuild-db-ledgers-index, recover,
    regenerate-interleaved-storage-index-file, simpletest, triggeraudit, updateBookieInLedger,
    updatecookie, updateledgers, whatisinstanceid, whoisauditor
"""
"""All commands of `bookkeeper shell` (4.18)."""

OFTEN_USED = """
    autorecovery, bookieformat, bookieinfo, bookiesanity, decommissionbookie, deleteledger,
    ledgermetadata, listbookies, listledgers, listunderreplicated, readledger, recover, simpletest,
    whoisauditor
"""
"""Commands that operators use often. Each must have a counterpart."""

NAMED = re.compile(r"`ledgerlog ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*)((?: --[a-z-]+)*)[^`]*`")


def rows(heading: str) -> Iterator[tuple[str, ...]]:
    """The cells of the table below a heading, without its head."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield tuple(cell.strip() for cell in line.strip("|").split("|"))


def listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def test_each_command_of_the_shell_has_one_row_in_order() -> None:
    names = [row[0].strip("`") for row in rows("The shell")]
    assert names == sorted(listed(SHELL), key=str.lower)


def test_commands_that_operators_use_often_have_a_counterpart() -> None:
    ours = {row[0].strip("`"): row[1] for row in rows("The shell")}
    assert [name for name in listed(OFTEN_USED) if "`ledgerlog " not in ours[name]] == []


@pytest.mark.parametrize("heading", ["The shell", "The scripts"])
def test_a_command_without_a_counterpart_has_a_reason(heading: str) -> None:
    without = [row for row in rows(heading) if row[1] == "none"]
    assert [row[0] for row in without if len(row[2].split()) < 5] == []
    others = [row for row in rows(heading) if row[1] != "none"]
    assert [row[0] for row in others if not NAMED.search(row[1]) and "--help" not in row[1]] == []


def test_each_command_of_ledgerlog_on_the_page_exists() -> None:
    existing = commands()
    named = NAMED.findall(PAGE.read_text())
    assert len(named) > 50
    unknown = []
    for words, options in named:
        command = existing.get(words)
        if command is None:
            unknown.append(words)
            continue
        spelled = " ".join(spelling for spelling, *_ in options_of(words, command))
        unknown += [f"{words} {each}" for each in options.split() if f"`{each}`" not in spelled]
    assert unknown == []
