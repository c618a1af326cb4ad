"""Payloads that depend on ledger and entry, so that every reader can verify them."""

from __future__ import annotations

import hashlib
import random

SIZE_BYTES_MAX = 3_000


def payload(seed: int, entry_id: int) -> bytes:
    """The right payload of an entry, 40 to 3,000 bytes."""
    name = f"{seed}:{entry_id}".encode()
    size = random.Random(name).randrange(40, SIZE_BYTES_MAX)
    digest = hashlib.sha256(name).digest()
    return (name + b"|" + digest * (size // len(digest) + 1))[:size]
