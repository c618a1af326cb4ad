"""`python -m tests.transcripts --rewrite [STORY ...]`: writes the real answers of the machines."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.transcripts.stories import STORIES, play


def main(arguments: list[str]) -> int:
    """Compare the named stories, by default all; with --rewrite, replace them."""
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
