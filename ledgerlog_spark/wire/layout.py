r"""The `LAYOUT` node: which tree the ledgers are kept in (WIRE.md#znodes).

Two lines without a newline at the end: `2`, and the factory's class name, a colon, its version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ledgerlog_spark.errors import WireFormatError

_TEXT = re.compile(r"2\n([A-Za-z0-9_.$]{1,256}):([0-9]{1,9})\n?")


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
        """The layout in a node's data.

        Raises:
            WireFormatError: Another layout format, or none.
        """
        match = _TEXT.fullmatch(data.decode("ascii", "replace"))
        if match is None:
            raise WireFormatError(f"not a ledger layout: {data[:80]!r}")
        return cls(match[1], int(match[2]))


HIERARCHICAL: Final = Layout("org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory", 1)
"""The tree that `ledger_path` describes; what ledgerlog writes, and Apache's default."""
