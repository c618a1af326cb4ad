"""Payloads that say what they are: anybody can tell whether an entry is the one that was sent."""

from __future__ import annotations

import hashlib
import random

SIZE_BYTES_MAX = 3_000


def payload(seed: int, entry_id: int) -> bytes:
    """The only right payload of an entry, 40 to 3,000 bytes."""
    name = f"{seed}:{entry_id}".encode()
    size = random.Random(name).randrange(40, SIZE_BYTES_MAX)
    digest = hashlib.sha256(name).digest()
    return (name + b"|" + digest * (size // len(digest) + 1))[:size]
