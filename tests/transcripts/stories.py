"""Plays a text file against the machines: the file is the network, the disk and the clock.

A story is a list of blocks. A block is one or more commands, a line of four dashes, and what the
machines asked for in answer, one line for each effect (`-` for nothing). Lines that begin with `#`
tell the story. The folder of a story names its player, whose docstring lists the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tests.transcripts.leader_player import LeaderPlayer
from tests.transcripts.ledger_player import LedgerPlayer
from tests.transcripts.log_player import LogPlayer

SEPARATOR = "----"


class Player(Protocol):
    """State of one story."""

    def run(self, command: str) -> list[str]:
        """Effects of one command, as lines."""


PLAYERS: Mapping[str, Callable[[], Player]] = {
    "ledgers": LedgerPlayer,
    "logs": LogPlayer,
    "leaders": LeaderPlayer,
}
STORIES = sorted(
    path for folder in PLAYERS for path in (Path(__file__).parent / folder).glob("*.txt")
)


def play(path: Path, text: str | None = None) -> str:
    """The story as it really goes: the same text with what the machines answered.

    Args:
        path: Of the story.
        text: In place of the file's.
    """
    player = PLAYERS[path.parent.name]()
    lines: list[str] = []
    commands: list[str] = []
    is_answer = False
    for line in (path.read_text() if text is None else text).splitlines():
        if line == SEPARATOR:
            answers = [answer for command in commands for answer in player.run(command)]
            lines += [SEPARATOR, *(answers or ["-"])]
            commands = []
            is_answer = True
        elif not line:
            assert not commands, f"commands without an answer: {commands}"
            is_answer = False
            lines.append(line)
        elif not is_answer:
            lines.append(line)
            if not line.startswith("#"):
                commands.append(line)
    return "\n".join(lines) + "\n"
