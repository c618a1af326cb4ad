"""Verdicts kept in a file, so that a long run can be done in several sessions.

A verdict counts for the tree that it was made in, and for no other: the key is a hash of the code
and of the tests. One line of JSON for each; several runs may append to one file at once.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.mutation.mutation import ROOT, Mutation, suite_of

HASHED = ("ledgerlog_spark", "bookie_server", "tests")


def hash_of_tree() -> str:
    """Of all code and tests, but for the mutations themselves."""
    digest = hashlib.sha256()
    for name in HASHED:
        for path in sorted((ROOT / name).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if relative.parts[:2] != ("tests", "mutation"):
                digest.update(f"{relative}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def key_of(mutation: Mutation) -> str:
    """Of what is changed, and of what is run for it."""
    said = repr((mutation.file, mutation.old, mutation.new, suite_of(mutation)))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


class Kept:
    """The file of one tree's verdicts, and of how long each command takes without a mistake."""

    def __init__(self, path: Path | None, *, resumes: bool) -> None:
        """What is in the file counts with `resumes`; None keeps nothing."""
        self._path = path
        self._tree = hash_of_tree()
        self._found: dict[str, dict[str, Any]] = {}
        if resumes and path is not None and path.exists():
            for line in path.read_text().splitlines():
                kept = json.loads(line)
                if kept.pop("tree") == self._tree:
                    self._found[kept.pop("key")] = kept

    def get(self, key: str) -> dict[str, Any] | None:
        """What was kept under that key."""
        return self._found.get(key)

    def put(self, key: str, **said: Any) -> None:
        """Keep it from now on."""
        self._found[key] = said
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"tree": self._tree, "key": key, **said}) + "\n")
