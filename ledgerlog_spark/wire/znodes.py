r"""The paths of ledgers in ZooKeeper, and the `LAYOUT` node (WIRE.md#znodes).

The paths below the ledgers root are the same as in Apache's hierarchical ledger manager. A ledger
id below 2,147,483,647 has ten digits, as `/AA/BBBB/LCCCC`. Every other id has nineteen digits, as
`/AAA/BBBB/CCCC/DDDD/LEEEE`. The `LAYOUT` node has two lines, without a newline at the end. The
first line is `2`. The second line is the class name of the factory, a colon and its version.
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
        """The data of the `LAYOUT` node."""
        return f"2\n{self.factory}:{self.version}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Layout:
        """The layout in the data of a `LAYOUT` node."""
        match = _LAYOUT.fullmatch(data.decode("ascii", "replace"))
        if match is None:
            raise WireFormatError(f"not a ledger layout: {data[:80]!r}")
        return cls(match[1], int(match[2]))


HIERARCHICAL: Final = Layout("org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory", 1)
"""The layout with the paths of this module. ledgerlog writes it, as Apache does by default."""


def ledger_path(ledger_id: int, *, is_long: bool = False) -> str:
    """The path below the ledgers root. It begins with a slash. `is_long` gives nineteen digits."""
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise WireFormatError(f"ledger id {ledger_id} is not between 0 and {LEDGER_ID_MAX}")
    if ledger_id < LONG_FROM_LEDGER_ID and not is_long:
        digits = f"{ledger_id:010d}"
        return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_id_of(path: str, *, is_long: bool = False) -> int:
    """The id of the ledger with this path. `is_long` allows nineteen digits for every id."""
    match = _SHORT.fullmatch(path) or _LONG.fullmatch(path)
    if match is not None:
        ledger_id = int("".join(match.groups()))
        if ledger_id <= LEDGER_ID_MAX and path in {
            ledger_path(ledger_id),
            ledger_path(ledger_id, is_long=is_long),
        }:
            return ledger_id
    raise WireFormatError(f"{path!r} is not the path of a ledger", path=path)
