r"""Format 1 of the ledger metadata record: lines, before there were digests in it. Read only.

    write quorum \n ensemble size \n length \n
    { first entry id \t bookie id \t bookie id ... \n } *
    [ last entry id \t "CLOSED" ]        last entry id -102: in recovery

The ack quorum is the write quorum.
"""

from __future__ import annotations

import re

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import Fragment, LedgerState
from ledgerlog_spark.wire.ledger_metadata.fields import LedgerFields

_IN_RECOVERY = -102
_CLOSED = "CLOSED"
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_NUMBER_LINES = 3


def decode_lines(body: bytes) -> LedgerFields:
    """The fields of a record in format 1, its version line taken off."""
    try:
        lines = body.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as cause:
        raise WireFormatError("format 1 is UTF-8 text") from cause
    if len(lines) < _NUMBER_LINES:
        raise WireFormatError("it ends before its three sizes are complete")
    fields = LedgerFields(state=LedgerState.OPEN)
    fields.write_quorum, fields.ensemble_size, fields.length = map(_number, lines[:_NUMBER_LINES])
    for place, line in enumerate(lines[_NUMBER_LINES:], _NUMBER_LINES + 1):
        first, *rest = line.split("\t")
        if rest == [_CLOSED]:
            if place != len(lines):
                raise WireFormatError("lines follow the last entry id")
            _close(fields, _number(first))
        else:
            fields.fragments.append(Fragment(_number(first), tuple(rest)))
    return fields


def _close(fields: LedgerFields, last_entry_id: int) -> None:
    if last_entry_id == _IN_RECOVERY:
        fields.state = LedgerState.IN_RECOVERY
    else:
        fields.state = LedgerState.CLOSED
        fields.last_entry_id = last_entry_id


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise WireFormatError(f"{text[:40]!r} is not a number")
    return int(text)
