r"""The nodes of auto-recovery that Apache and ledgerlog share (WIRE.md#underreplication).

Apache writes most of these nodes as Protocol Buffers *text*, and its parser refuses unknown fields.
So ledgerlog writes only Apache's fields. In an encoded text, each field has its own line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.protobuf.binary import encode_number, fields_of
from ledgerlog_spark.wire.protobuf.text import Value, parse, quoted
from ledgerlog_spark.wire.znodes import LEDGER_ID_MAX

UNDERREPLICATION: Final = "/underreplication"
"""The parent of all nodes of auto-recovery, below the ledgers root."""
LAYOUT: Final = f"{UNDERREPLICATION}/LAYOUT"
MARKS: Final = f"{UNDERREPLICATION}/ledgers"
LOCKS: Final = f"{UNDERREPLICATION}/locks"
ELECTION: Final = f"{UNDERREPLICATION}/auditorelection"
VOTE_PREFIX: Final = "V_"
DISABLED: Final = f"{UNDERREPLICATION}/disable"
LOST_BOOKIE_DELAY: Final = f"{UNDERREPLICATION}/lostBookieRecoveryDelay"

LAYOUT_DATA: Final = b'type: "BASIC"\nversion: 1\n'
SIZE_BYTES_MAX: Final = 262_144
"""Maximum size of a node that is decoded. A mark with the longest bookie ids is much smaller."""
REPLICAS_MAX: Final = 1_000
"""Maximum number of bookies in one mark."""
DELAY_SECONDS_MAX: Final = (1 << 31) - 1
_TIME_FIELD: Final = 1
_TEXT_MAX: Final = 300

LEVEL: Final = re.compile("[0-9a-f]{4}")
"""Pattern of the name of a directory of marks. Each of the four levels has 16 bits of the ledger
id."""
LEVELS_COUNT: Final = 4
_LEVEL_BITS: Final = 16
_VOTE: Final = re.compile(r"V_([0-9]{10})")


@dataclass(frozen=True, slots=True)
class MarkData:
    """The data of a mark: the lost bookies of the ledger, and the time when it was last marked."""

    replicas: tuple[str, ...]
    created_ms: int | None = None

    def encode(self) -> bytes:
        """Return the `UnderreplicatedLedgerFormat` message as text."""
        lines = [f"replica: {quoted(replica.encode())}\n" for replica in self.replicas]
        if self.created_ms is not None:
            lines.append(f"ctime: {self.created_ms}\n")
        return "".join(lines).encode()

    @classmethod
    def decode(cls, data: bytes) -> MarkData:
        """Decode the mark in the data of a node. Each bookie is returned once."""
        replicas: dict[str, None] = {}
        created_ms: int | None = None
        for name, value in _values(data, "a mark"):
            if name == "replica":
                replicas[_text(name, value)] = None
            elif name == "ctime" and isinstance(value, int):
                created_ms = value
            else:
                raise WireFormatError(f"the field {name} of a mark is unknown", field=name)
        if len(replicas) > REPLICAS_MAX:
            raise WireFormatError(
                f"a mark lists {len(replicas)} bookies, more than {REPLICAS_MAX}",
                count=len(replicas),
            )
        return cls(tuple(replicas), created_ms)

    def merged(self, replicas: Iterable[str], created_ms: int | None) -> MarkData:
        """Return this mark with further bookies, at most `REPLICAS_MAX`, and with a new time.

        If there are more bookies, the mark lists only the first `REPLICAS_MAX`. The list may be
        incomplete, because a worker checks all members of the ledger.
        """
        union = tuple(dict.fromkeys((*self.replicas, *replicas)))
        return MarkData(union[:REPLICAS_MAX], created_ms)


def mark_path(ledger_id: int) -> str:
    """Return the path of a ledger's mark below the ledgers root."""
    return f"{mark_directory(ledger_id)}/{_name(ledger_id)}"


def mark_directory(ledger_id: int) -> str:
    """Return the path of the directory that contains the mark of this ledger and no other mark.

    The path is relative to the ledgers root. Its four levels are the ledger id in hexadecimal, with
    sixteen bits in each level.
    """
    digits = f"{_checked(ledger_id):016x}"
    return f"{MARKS}/{digits[:4]}/{digits[4:8]}/{digits[8:12]}/{digits[12:]}"


def level_of(ledger_id: int, level: int) -> int:
    """Return the number in the name of the directory above a ledger's mark on a level (0 to 3)."""
    return ledger_id >> _LEVEL_BITS * (LEVELS_COUNT - 1 - level) & ((1 << _LEVEL_BITS) - 1)


def ledger_of_levels(names: Iterable[str]) -> int:
    """Return the id of the ledger whose mark is in the directory with these four level names."""
    return int("".join(names), 16)


def lock_path(ledger_id: int) -> str:
    """Return the path of a ledger's lock below the ledgers root."""
    return f"{LOCKS}/{_name(ledger_id)}"


def encode_holder(bookie_id: str) -> bytes:
    """Return the data of a lock or of a vote: a message as text with the field `bookieId`."""
    return f"bookieId: {quoted(bookie_id.encode())}\n".encode()


def decode_holder(data: bytes) -> str:
    """Return the bookie id in the data of a lock or of a vote; "" if the data has no id."""
    holder = ""
    for name, value in _values(data, "a lock or a vote"):
        if name != "bookieId":
            raise WireFormatError(f"the field {name} of a lock or vote is unknown", field=name)
        holder = _text(name, value)
    return holder


def vote_number(name: str) -> int | None:
    """Return the number in the name of a vote; None if the name is not the name of a vote."""
    match = _VOTE.fullmatch(name)
    return None if match is None else int(match[1])


def check_layout(data: bytes) -> None:
    """Raise an error unless the data of `LAYOUT` describes the paths in this module."""
    found = dict(_values(data, "the layout of auto-recovery"))
    if found != {"type": b"BASIC", "version": 1}:
        raise WireFormatError(
            f"auto-recovery has the layout {found.get('type')!r} with version "
            f"{found.get('version')!r}, but this release reads only b'BASIC' with version 1"
        )


def encode_delay(seconds: int) -> bytes:
    """Return the data of the node with the delay of auto-recovery: a decimal number."""
    if not 0 <= seconds <= DELAY_SECONDS_MAX:
        raise WireFormatError(f"a delay of {seconds} s is not between 0 and {DELAY_SECONDS_MAX}")
    return str(seconds).encode()


def decode_delay(data: bytes) -> int:
    """Return the delay in seconds. Apache also stores negative numbers, which mean no delay."""
    if not re.fullmatch(rb"[+-]?[0-9]{1,10}", data):
        raise WireFormatError(f"not a delay in seconds: {data[:40]!r}")
    return max(0, int(data))


def encode_time(time_ms: int) -> bytes:
    """Return the data of the node with the time of a check: a binary message with field 1."""
    return encode_number(_TIME_FIELD, time_ms)


def decode_time(data: bytes) -> int | None:
    """Return the time of a check in ms since 1970; None if the data has no time."""
    found: int | None = None
    for field in fields_of(data[:SIZE_BYTES_MAX]):
        if field.number == _TIME_FIELD:
            found = field.as_int64()
    return None if found is None or found < 0 else found


def _checked(ledger_id: int) -> int:
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise WireFormatError(f"ledger id {ledger_id} is not between 0 and {LEDGER_ID_MAX}")
    return ledger_id


def _name(ledger_id: int) -> str:
    return f"urL{_checked(ledger_id):010d}"


def _values(data: bytes, what: str) -> list[tuple[str, Value]]:
    if len(data) > SIZE_BYTES_MAX:
        raise WireFormatError(
            f"{what} has {len(data):,} bytes, more than {SIZE_BYTES_MAX:,}", size_bytes=len(data)
        )
    message = parse(data)
    if message.messages:
        name = message.messages[0][0]
        raise WireFormatError(f"{what} has the unknown message {name[:40]}", field=name[:40])
    return message.values


def _text(name: str, value: Value) -> str:
    if not isinstance(value, bytes):
        raise WireFormatError(f"{name} is not a string", field=name)
    try:
        text = value.decode()
    except UnicodeDecodeError as cause:
        raise WireFormatError(f"{name} is not UTF-8 text", field=name) from cause
    if len(text) > _TEXT_MAX:
        raise WireFormatError(f"{name} has {len(text)} characters, more than {_TEXT_MAX}")
    return text
