"""The moves of an append: how often control goes from one of our files to another.

One entry of 100 bytes is appended with `await ledger.append(...)` to a ledger of three bookies
(ensemble 3, write quorum 3, ack quorum 2) through `LedgerClient` and `InProcessTransport`. The
bookies are the fakes below, which answer at once and are not counted. Three appends go first, so
that nothing happens for the first time. `sys.setprofile` then sees every call of a function whose
file is in `ledgerlog_spark`, including resumed coroutines and comprehensions, until `append`
returns. At that time, all three answers have arrived. Two consecutive calls in different files are
a move. Returns are not moves. The append is measured three times, and all three results must be
equal.

On commit c5a11d1 this gives 105 moves, 156 calls, 73 functions and 17 files.

The script runs in a process of its own, `python -I -B moves.py ROOT`, imports nothing but the
standard library and the tree at ROOT, and prints one JSON object. Classes are looked up by the name
that they are defined under, so that a module may move.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

WARM_UPS = 3
RUNS = 3
BOOKIES = 3
ACK_QUORUM = 2
ENTRY = bytes(100)


class Definitions:
    """Finds the top-level definitions of a tree's modules, by name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __getattr__(self, name: str) -> Any:
        definition = re.compile(rf"(?m)^(?:class|def|async def) {name}\b")
        for path in sorted((self._root / "ledgerlog_spark").rglob("*.py")):
            if definition.search(path.read_text()):
                parts = path.relative_to(self._root).with_suffix("").parts
                module = importlib.import_module(".".join(p for p in parts if p != "__init__"))
                return getattr(module, name)
        raise AttributeError(f"no module of {self._root} defines {name}")


class Bookie:
    """Accepts every add, and answers immediately."""

    def __init__(self, ok: Any) -> None:
        self._ok = ok

    def add(self, _request: Any, on_done: Any) -> None:
        on_done(self._ok)


class Calls:
    """Calls of functions in one package, in order."""

    def __init__(self, package: Path) -> None:
        self._prefix = f"{package}/"
        self.seen: list[tuple[str, str]] = []

    def __call__(self, frame: Any, event: str, _arg: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._prefix):
            self.seen.append((code.co_filename.removeprefix(self._prefix), code.co_qualname))


@dataclass(frozen=True)
class Moves:
    """The moves and calls of one append."""

    moves: int
    calls: int
    functions: int
    files: int
    entered: dict[str, int]


def moves_in(seen: list[tuple[str, str]]) -> Moves:
    """The figures of a sequence of calls, each a file and a function's name."""
    files = [file for file, _ in seen]
    entries = files[:1] + [after for before, after in pairwise(files) if before != after]
    return Moves(
        moves=max(len(entries) - 1, 0),
        calls=len(seen),
        functions=len(set(seen)),
        files=len(set(files)),
        entered={file: entries.count(file) for file in sorted(set(files))},
    )


async def opened(tree: Definitions) -> tuple[Any, Any]:
    """A client of three bookies in memory, and a ledger that it writes."""
    names = [f"bookie-{number}" for number in range(BOOKIES)]
    nodes = tree.MemoryNodes()
    session = tree.memory_metadata(nodes)
    await session.initialize()
    for name in names:
        await session.registration.register(tree.BookieInfo(name, "127.0.0.1", 3181))
    stores = tree.memory_metadata(nodes)
    transport = tree.InProcessTransport({name: Bookie(tree.Code.OK) for name in names})
    services = tree.Services.on(stores, transport, tree.ClientSettings(), Random(7))
    client = tree.LedgerClient(services, on_close=stores.close)
    ledger = await client.create_ledger(
        ensemble_size=BOOKIES, write_quorum=BOOKIES, ack_quorum=ACK_QUORUM
    )
    return client, ledger


async def measured(root: Path) -> list[Moves]:
    client, ledger = await opened(Definitions(root))
    calls = Calls(root / "ledgerlog_spark")
    found = []
    for number in range(WARM_UPS + RUNS):
        calls.seen = []
        sys.setprofile(calls if number >= WARM_UPS else None)
        await ledger.append(ENTRY)
        sys.setprofile(None)
        await ledger.flush()
        for _ in range(5):  # the append's work in later turns of the loop
            await asyncio.sleep(0)
        found.append(moves_in(calls.seen))
    await ledger.close()
    await client.aclose()
    return found[WARM_UPS:]


def main(root: Path) -> int:
    sys.path.insert(0, str(root))
    runs = asyncio.run(measured(root))
    if any(run != runs[0] for run in runs):
        sys.stderr.write(f"the runs differ: {[(run.moves, run.calls) for run in runs]}\n")
        return 1
    sys.stdout.write(json.dumps(asdict(runs[0])) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
