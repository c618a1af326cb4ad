"""Znode paths of ledgers below the ledgers root (WIRE.md#znodes).

Ids below 2,147,483,647 are written with ten digits as `/AA/BBBB/LCCCC`, all others with nineteen
as `/AAA/BBBB/CCCC/DDDD/LEEEE`, as Apache's hierarchical ledger manager does.
"""

from __future__ import annotations

import re

from ledgerlog_spark.errors import WireFormatError

LONG_FROM_LEDGER_ID = (1 << 31) - 1
LEDGER_ID_MAX = (1 << 63) - 1
_SHORT = re.compile(r"/([0-9]{2})/([0-9]{4})/L([0-9]{4})")
_LONG = re.compile(r"/([0-9]{3})/([0-9]{4})/([0-9]{4})/([0-9]{4})/L([0-9]{4})")


def ledger_path(ledger_id: int) -> str:
    """The path below the ledgers root, starting with a slash.

    Raises:
        WireFormatError: No ledger can have this id.
    """
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise WireFormatError(f"ledger id {ledger_id} is not in 0 to {LEDGER_ID_MAX}")
    if ledger_id < LONG_FROM_LEDGER_ID:
        digits = f"{ledger_id:010d}"
        return f"/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_id_of(path: str) -> int:
    """The ledger id whose path below the root is `path`.

    Raises:
        WireFormatError: Not a path that `ledger_path` returns for any id.
    """
    match = _SHORT.fullmatch(path) or _LONG.fullmatch(path)
    if match is not None:
        ledger_id = int("".join(match.groups()))
        if ledger_id <= LEDGER_ID_MAX and ledger_path(ledger_id) == path:
            return ledger_id
    raise WireFormatError(f"{path!r} is not the path of a ledger", path=path)
