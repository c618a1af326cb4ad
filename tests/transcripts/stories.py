"""Plays a text file against the machines: the file is the network, the disk and the clock.

A story is a list of blocks. A block consists of one or more commands, a line of four dashes, and
the effects of the machines, one on each line (`-` for no effect). Lines that begin with `#` tell
the story. The folder of a story names its player, whose docstring lists the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tests.transcripts.audit_player import AuditPlayer
from tests.transcripts.leader_player import LeaderPlayer
from tests.transcripts.ledger_player import LedgerPlayer
from tests.transcripts.log_player import LogPlayer

SEPARATOR = "----"


class Player(Protocol):
    """The state of one story."""

    def run(self, command: str) -> list[str]:
        """Return the effects of one command, as lines."""


PLAYERS: Mapping[str, Callable[[], Player]] = {
    "ledgers": LedgerPlayer,
    "logs": LogPlayer,
    "leaders": LeaderPlayer,
    "audits": AuditPlayer,
}
STORIES = sorted(
    path for folder in PLAYERS for path in (Path(__file__).parent / folder).glob("*.txt")
)


def play(path: Path, text: str | None = None) -> str:
    """Return the text of the story with the real answers of the machines.

    Args:
        path: Path of the story.
        text: The text to play instead of the file's text.
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
