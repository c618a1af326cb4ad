"""Verdicts in a file, so that a long run can be divided into several sessions.

A verdict counts only for the tree in which it was made: the key contains a hash of the code and of
the tests. The file has one line of JSON for each verdict. Several runs may append to it at the same
time.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.mutation.mutation import ROOT, Mutation, suite_of

HASHED = ("ledgerlog_spark", "bookie_server", "tests")


def hash_of_tree() -> str:
    """The hash of all code and tests, without the mutations themselves."""
    digest = hashlib.sha256()
    for name in HASHED:
        for path in sorted((ROOT / name).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if relative.parts[:2] != ("tests", "mutation"):
                digest.update(f"{relative}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def key_of(mutation: Mutation) -> str:
    """The hash of a mutation and of its suite."""
    said = repr((mutation.file, mutation.old, mutation.new, suite_of(mutation)))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


class Kept:
    """The verdicts of one tree in a file, and the duration of each command without a mistake."""

    def __init__(self, path: Path | None, *, resumes: bool) -> None:
        """With `resumes`, use the verdicts in the file. Without a path, store nothing."""
        self._path = path
        self._tree = hash_of_tree()
        self._found: dict[str, dict[str, Any]] = {}
        if resumes and path is not None and path.exists():
            for line in path.read_text().splitlines():
                kept = json.loads(line)
                if kept.pop("tree") == self._tree:
                    self._found[kept.pop("key")] = kept

    def get(self, key: str) -> dict[str, Any] | None:
        """The stored values of a key, or None."""
        return self._found.get(key)

    def put(self, key: str, **said: Any) -> None:
        """Store the values of a key."""
        self._found[key] = said
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"tree": self._tree, "key": key, **said}) + "\n")
