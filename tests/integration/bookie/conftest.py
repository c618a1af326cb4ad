from __future__ import annotations

from tests.fixtures.bookies import bookie, ledger_id, make_bookie, peer

__all__ = ["bookie", "ledger_id", "make_bookie", "peer"]
