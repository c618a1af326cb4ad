r"""Znodes of ledgers: their paths, and the `LAYOUT` node that names the tree (WIRE.md#znodes).

Ledger ids below 2,147,483,647 are written with ten digits as `/AA/BBBB/LCCCC` below the ledgers
root, all others with nineteen as `/AAA/BBBB/CCCC/DDDD/LEEEE`, as Apache's hierarchical ledger
manager does. `LAYOUT` has two lines without a newline at the end: `2`, and the factory's class
name, a colon, its version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ledgerlog_spark.errors import WireFormatError

LONG_FROM_LEDGER_ID = (1 << 31) - 1
LEDGER_ID_MAX = (1 << 63) - 1
_SHORT = re.compile(r"/([0-9]{2})/([0-9]{4})/L([0-9]{4})")
_LONG = re.compile(r"/([0-9]{3})/([0-9]{4})/([0-9]{4})/([0-9]{4})/L([0-9]{4})")
_LAYOUT = re.compile(r"2\n([A-Za-z0-9_.$]{1,256}):([0-9]{1,9})\n?")


@dataclass(frozen=True, slots=True)
class Layout:
    """Class name and version of Apache's ledger manager factory."""

    factory: str
    version: int

    def encode(self) -> bytes:
        """The node's data."""
        return f"2\n{self.factory}:{self.version}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Layout:
        """The layout in a node's data."""
        match = _LAYOUT.fullmatch(data.decode("ascii", "replace"))
        if match is None:
            raise WireFormatError(f"not a ledger layout: {data[:80]!r}")
        return cls(match[1], int(match[2]))


HIERARCHICAL: Final = Layout("org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory", 1)
"""The tree of the paths here; what ledgerlog writes, and Apache's default."""


def ledger_path(ledger_id: int, *, is_long: bool = False) -> str:
    """The path below the ledgers root, starting with a slash; `is_long` for nineteen digits."""
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise WireFormatError(f"ledger id {ledger_id} is not in 0 to {LEDGER_ID_MAX}")
    if ledger_id < LONG_FROM_LEDGER_ID and not is_long:
        digits = f"{ledger_id:010d}"
        return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_id_of(path: str, *, is_long: bool = False) -> int:
    """The ledger id whose path below the root is `path`; with `is_long` its long path too."""
    match = _SHORT.fullmatch(path) or _LONG.fullmatch(path)
    if match is not None:
        ledger_id = int("".join(match.groups()))
        if ledger_id <= LEDGER_ID_MAX and path in {
            ledger_path(ledger_id),
            ledger_path(ledger_id, is_long=is_long),
        }:
            return ledger_id
    raise WireFormatError(f"{path!r} is not the path of a ledger", path=path)
