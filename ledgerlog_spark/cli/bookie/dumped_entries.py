"""Converts entries to the forms that `ledgerlog bookie dump` writes."""

from __future__ import annotations

import base64
import json


def raw_entry(_entry_id: int, stored: bytes) -> bytes:
    """Return the length of an entry in 4 bytes, and its stored bytes."""
    return len(stored).to_bytes(4, "big") + stored


def hex_line(entry_id: int, stored: bytes) -> bytes:
    """Return a line with the ID of an entry and its stored bytes in hex digits."""
    return f"{entry_id} {stored.hex()}\n".encode()


def json_line(entry_id: int, stored: bytes) -> bytes:
    """Return a line with an entry as a JSON object."""
    entry = {
        "entry_id": entry_id,
        "size_bytes": len(stored),
        "stored_base64": base64.b64encode(stored).decode(),
    }
    return json.dumps(entry).encode() + b"\n"
