"""What a ledger's password becomes (WIRE.md#keys)."""

from __future__ import annotations

import hashlib


def master_key(password: bytes) -> bytes:
    """The 20 bytes that travel with every add and every fencing read."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def digest_key(password: bytes) -> bytes:
    """The 20-byte key of HMAC digests."""
    return hashlib.sha1(b"mac" + password, usedforsecurity=False).digest()
