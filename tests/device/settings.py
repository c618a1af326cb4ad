"""Sizes of the traced storage, and the entries that it stores."""

from __future__ import annotations

from dataclasses import replace

from tests.crash.machine import SMALL

SETTINGS = replace(SMALL, open_files_max=64, free_bytes_min=0, pool_files_max=1)


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    """The payload of an entry."""
    return b"%d-%d " % (ledger_id, entry_id) * 1_500
