r"""The paths of ledgers in ZooKeeper, and the `LAYOUT` node (WIRE.md#znodes).

The paths of ledgers below the ledgers root are the same as in Apache's ledger managers. In the
hierarchical layout, a ledger id below 2,147,483,647 has ten digits, as `/AA/BBBB/LCCCC`. Every
other id has nineteen digits, as `/AAA/BBBB/CCCC/DDDD/LEEEE`. In the long hierarchical layout, every
id has nineteen digits. In the flat layout, all ledgers are children of the root, as `/L0000000042`,
and an id has at least ten digits. The `LAYOUT` node has two lines, without a newline at the end.
The first line is `2`. The second line is the class name of the factory, a colon and its version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ledgerlog_spark.errors import WireFormatError

LONG_FROM_LEDGER_ID = (1 << 31) - 1
LEDGER_ID_MAX = (1 << 63) - 1
_SHORT = re.compile(r"/([0-9]{2})/([0-9]{4})/L([0-9]{4})")
_LONG = re.compile(r"/([0-9]{3})/([0-9]{4})/([0-9]{4})/([0-9]{4})/L([0-9]{4})")
_FLAT = re.compile(r"/L([0-9]{10,19})")
_LAYOUT = re.compile(r"2\n([A-Za-z0-9_.$]{1,256}):([0-9]{1,9})\n?")


class PathStyle(Enum):
    """The rule that makes the path of a ledger from its id."""

    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "longhierarchical"
    FLAT = "flat"


@dataclass(frozen=True, slots=True)
class Layout:
    """Class name and version of Apache's ledger manager factory."""

    factory: str
    version: int

    def encode(self) -> bytes:
        """Return the data of the `LAYOUT` node."""
        return f"2\n{self.factory}:{self.version}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Layout:
        """Return the layout in the data of a `LAYOUT` node."""
        match = _LAYOUT.fullmatch(data.decode("ascii", "replace"))
        if match is None:
            raise WireFormatError(f"not a ledger layout: {data[:80]!r}")
        return cls(match[1], int(match[2]))


HIERARCHICAL: Final = Layout("org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory", 1)
"""The hierarchical layout. ledgerlog creates new clusters with it, as Apache does by default."""


def ledger_path(ledger_id: int, style: PathStyle = PathStyle.HIERARCHICAL) -> str:
    """Return the path of a ledger, relative to the ledgers root. The path begins with a slash."""
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise WireFormatError(f"ledger id {ledger_id} is not between 0 and {LEDGER_ID_MAX}")
    if style is PathStyle.FLAT:
        return f"/L{ledger_id:010d}"
    if ledger_id < LONG_FROM_LEDGER_ID and style is PathStyle.HIERARCHICAL:
        digits = f"{ledger_id:010d}"
        return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_id_of(path: str, style: PathStyle = PathStyle.HIERARCHICAL) -> int:
    """Return the id of the ledger with this path."""
    patterns = (_FLAT,) if style is PathStyle.FLAT else (_SHORT, _LONG)
    for pattern in patterns:
        match = pattern.fullmatch(path)
        if match is not None:
            ledger_id = int("".join(match.groups()))
            if ledger_id <= LEDGER_ID_MAX and path == ledger_path(ledger_id, style):
                return ledger_id
    raise WireFormatError(f"{path!r} is not the path of a ledger", path=path)
