"""`python -m tests.transcripts --rewrite [STORY ...]`: write what the machines really answer."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.transcripts.stories import STORIES, play


def main(arguments: list[str]) -> int:
    """Compare, or with --rewrite replace, the stories that are named (default: all)."""
    rewrite = "--rewrite" in arguments
    named = [Path(a).absolute() for a in arguments if a != "--rewrite"]
    changed = 0
    for path in named or STORIES:
        played = play(path)
        if played != path.read_text():
            changed += 1
            sys.stdout.write(f"{path.name} {'rewritten' if rewrite else 'differs'}\n")
            if rewrite:
                path.write_text(played)
    return 0 if rewrite or not changed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
