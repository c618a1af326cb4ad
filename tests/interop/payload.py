"""Payloads that depend on ledger and entry, so that every reader can verify them.

The Java program has the same rule, so it uses nothing that only Python has.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

SIZE_BYTES_MIN = 40
SIZES = 2_960


@dataclass(frozen=True, slots=True)
class Source:
    """The entries of one ledger.

    Attributes:
        seed: Distinguishes its entries from those of all other ledgers.
        sizes: Payload sizes in bytes, used in turn; none draws 40 to 2,999 for each entry.
    """

    seed: int
    sizes: tuple[int, ...] = ()

    def payload(self, entry_id: int) -> bytes:
        """The right payload of an entry."""
        name = f"{self.seed}:{entry_id}".encode()
        digest = hashlib.sha256(name).digest()
        size = (
            self.sizes[entry_id % len(self.sizes)]
            if self.sizes
            else SIZE_BYTES_MIN + int.from_bytes(digest[:4]) % SIZES
        )
        return (name + b"|" + digest * (size // len(digest) + 1))[:size]

    def length(self, last_entry_id: int) -> int:
        """Payload bytes of entries 0 to `last_entry_id`, inclusive."""
        return sum(len(self.payload(entry_id)) for entry_id in range(last_entry_id + 1))

    @property
    def words(self) -> tuple[str, str]:
        """Seed and sizes, in the form of commands."""
        return str(self.seed), ",".join(map(str, self.sizes)) or "-"

    @classmethod
    def of_words(cls, seed: str, sizes: str) -> Source:
        """The source from its `words`."""
        return cls(int(seed), tuple(map(int, sizes.split(","))) if sizes != "-" else ())
