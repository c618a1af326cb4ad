"""The values that every layer uses, such as quorums, fragments, metadata and outcome codes.

The values are frozen, and their methods only compute results from the fields. This module imports
only the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import total_ordering
from html import escape
from typing import TYPE_CHECKING, Generic, TypeVar

from ledgerlog_spark.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_ENTRY = -1
"""The entry id that means "no entry".

It is used as the last entry of an empty ledger, and as the LAC before any entry is confirmed.
"""

SERVICE_URI_VARIABLE = "LEDGERLOG_METADATA_SERVICE_URI"
"""The name of the environment variable with the metadata service URI of a cluster."""

SERVICE_URI_DEFAULT = "zk://localhost:2181/ledgers"

MASTER_KEY_SIZE_BYTES = 20
ENTRY_HEADER_SIZE_BYTES = 32
FRAME_SIZE_BYTES_MAX = 5_253_120
RUN_ENTRIES_MAX = 4_096
RUN_SIZE_BYTES_MAX = 1 << 20
SLICED_ENTRIES_MAX = 1_024
"""Maximum number of entries in one request for slices."""
SLICE_RANGES_MAX = 8_192
"""Maximum number of byte ranges in one request for slices."""
PASSWORD_SIZE_BYTES_MAX = 1_024
"""Maximum bytes of a new ledger's password.

The limit is small, because the metadata of each ledger contains the password. Ledgers that other
programs created may have longer passwords."""


PLACE_NAME_LENGTH_MAX = 255
"""Maximum number of characters in the name of a rack or region."""


class Code(Enum):
    """The outcome of one request to one bookie.

    `OK` means success. `NO_ENTRY` and `NO_LEDGER` report that the bookie does not have the entry or
    the ledger. `FENCED`, `UNAUTHORIZED`, `READ_ONLY` and `BAD_REQUEST` are refusals, so the request
    changed nothing. After every other code, the result is *unknown*. The bookie may or may not have
    carried out the request, so it remains unknown whether an entry exists.
    """

    OK = "ok"
    NO_LEDGER = "no_ledger"
    NO_ENTRY = "no_entry"
    FENCED = "fenced"
    UNAUTHORIZED = "unauthorized"
    READ_ONLY = "read_only"
    BAD_REQUEST = "bad_request"
    BAD_VERSION = "bad_version"
    BUSY = "busy"
    IO_ERROR = "io_error"
    DIGEST_MISMATCH = "digest_mismatch"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"

    @property
    def is_absent(self) -> bool:
        """Whether the bookie reported that it does not have the entry or the ledger."""
        return self in (Code.NO_ENTRY, Code.NO_LEDGER)


class DigestType(IntEnum):
    """Type of an entry's digest. BookKeeper's ledger metadata uses the same numbers."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class LedgerState(IntEnum):
    """State of a ledger in its metadata.

    A state is replaced only by a state with a higher number.
    """

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


def check_type(name: str, value: object, kind: type) -> None:
    """Raise an error if `value` is not of the type `kind`. A bool is never accepted.

    Raises:
        ConfigurationError: The type is wrong. The message contains the name and the value.
    """
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ConfigurationError(
            f"{name} must be of type {kind.__name__}, got {value!r}", key=name, value=value
        )


def checked_place_name(value: str) -> str:
    """Return the name of a rack or region, or raise ConfigurationError if it is not valid."""
    if (
        not 1 <= len(value) <= PLACE_NAME_LENGTH_MAX
        or not value.isprintable()
        or value != value.strip()
    ):
        raise ConfigurationError(
            f"{value!r} cannot be the name of a rack or region: use 1 to {PLACE_NAME_LENGTH_MAX} "
            "printable characters, without spaces at the ends",
            value=value,
        )
    return value


@dataclass(frozen=True, slots=True)
class Quorum:
    """The ensemble size E, the write quorum Qw and the ack quorum Qa, with E >= Qw >= Qa >= 1.

    Raises:
        ConfigurationError: The numbers are not in this order, or are not int.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    def __post_init__(self) -> None:
        for name in ("ensemble_size", "write_quorum", "ack_quorum"):
            check_type(name, getattr(self, name), int)
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise ConfigurationError(
                f"a ledger needs ensemble_size >= write_quorum >= ack_quorum >= 1, got "
                f"{self.ensemble_size}, {self.write_quorum}, {self.ack_quorum}",
                ensemble_size=self.ensemble_size,
                write_quorum=self.write_quorum,
                ack_quorum=self.ack_quorum,
            )

    @property
    def is_striped(self) -> bool:
        """Whether each bookie of the ensemble stores only some of the entries."""
        return self.ensemble_size > self.write_quorum


@dataclass(frozen=True, slots=True)
class Fragment:
    """Consecutive entries of a ledger that are stored on one ensemble.

    The fragment begins with `first_entry_id` and ends before the next fragment.

    The order of `ensemble` matters, because the place of a bookie in `ensemble` is its *index*.
    """

    first_entry_id: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """The metadata of one ledger, with the fields of BookKeeper's format 3.

    Attributes:
        fragments: The fragments, ascending by `first_entry_id`. The first fragment begins with
            entry 0.
        last_entry_id: Id of the last entry. NO_ENTRY if the ledger is not CLOSED, or is empty.
        length: Payload bytes of the whole ledger; 0 if the ledger is not CLOSED.
        password: The password without encryption, as in BookKeeper. It only prevents mistakes.
        created_ms: Time of creation, in ms since 1970.
        custom: Custom metadata, which maps names to bytes.
        token: Random number by which a client recognises the metadata that it created.
        format_version: The format in which the metadata was read. New metadata is always written in
            format 3.
        unknown_fields: Encoded fields of a newer BookKeeper, which are written back unchanged.
    """

    quorum: Quorum
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int = NO_ENTRY
    length: int = 0
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = field(default=b"", repr=False)
    has_password: bool = True
    created_ms: int = -1
    custom: Mapping[str, bytes] = field(default_factory=dict)
    token: int | None = None
    format_version: int = 3
    unknown_fields: bytes = field(default=b"", repr=False)

    @property
    def last_fragment(self) -> Fragment:
        """The last fragment. While the ledger is open, new entries belong to this fragment."""
        return self.fragments[-1]

    @property
    def is_closed(self) -> bool:
        """Whether `last_entry_id` and `length` are final."""
        return self.state is LedgerState.CLOSED

    def fragment_of(self, entry_id: int) -> Fragment:
        """Return the fragment that contains the entry `entry_id`, which must be at least 0."""
        owner = self.fragments[0]
        for fragment in self.fragments:
            if fragment.first_entry_id > entry_id:
                break
            owner = fragment
        return owner

    def in_recovery(self) -> LedgerMetadata:
        """Return the same metadata in the state IN_RECOVERY."""
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, *, last_entry_id: int, length: int) -> LedgerMetadata:
        """Return the same metadata in the state CLOSED, with this last entry and this length."""
        return replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)

    def with_fragments(self, fragments: tuple[Fragment, ...]) -> LedgerMetadata:
        """Return the same metadata with other fragments."""
        return replace(self, fragments=fragments)

    def _repr_html_(self) -> str:
        end = f", {self.last_entry_id + 1:,} entries, {self.length:,} bytes" * self.is_closed
        quorum = self.quorum
        rows = "".join(
            f"<tr><td>{fragment.first_entry_id:,}</td>"
            f"<td>{escape(', '.join(fragment.ensemble))}</td></tr>"
            for fragment in self.fragments
        )
        return (
            f"<b>ledger</b>, {self.state.name.lower()}{end}, {quorum.write_quorum} copies on "
            f"{quorum.ensemble_size} bookies, acknowledged after {quorum.ack_quorum} copies"
            f"<table><tr><th>from entry</th><th>bookies</th></tr>{rows}</table>"
        )


@total_ordering
@dataclass(frozen=True, slots=True)
class Position:
    """The position of one record in a log.

    Positions of one log are ordered by offset.

    Attributes:
        log_id: Id of the log; a later log of the same name has another id.
        offset: Offset of the record. Offsets have no gaps, and are never reused.
        ledger_id: The ledger that stored the record when this position was created. A merge may
            move the record to another ledger, so comparisons ignore `ledger_id` and `entry_id`.
        entry_id: The entry that contains the record.
    """

    log_id: str
    offset: int
    ledger_id: int = field(default=-1, compare=False)
    entry_id: int = field(default=NO_ENTRY, compare=False)

    def __lt__(self, other: object) -> bool:
        """Whether this position is before `other`. Both positions must be in the same log."""
        if not isinstance(other, Position) or other.log_id != self.log_id:
            return NotImplemented
        return self.offset < other.offset


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Version:
    """Version of a node.

    A node that is deleted and created again never gets an earlier version again.

    Attributes:
        incarnation: Id of the transaction that created the node.
        number: Number of writes of the node since it was created.
    """

    incarnation: int
    number: int


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """The value of a node as it was read or written, with its version for a compare-and-swap."""

    value: T
    version: Version


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """The addresses of a bookie, from its registration.

    Attributes:
        host: IP address or name of the v2 endpoint.
        port: TCP port of the v2 endpoint.
        grpc_port: TCP port of the control service; None for an Apache bookie, which has no such
            service.
        properties: All properties of the registration, including `ledgerlog.ops`,
            `ledgerlog.rack`, `ledgerlog.region` and `ledgerlog.free_bytes`.
    """

    bookie_id: str
    host: str
    port: int
    grpc_port: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def takes_runs(self) -> bool:
        """Whether the registration states that the bookie supports the request ADD_RUN."""
        return "ADD_RUN/1" in self._operations

    @property
    def takes_lacs(self) -> bool:
        """Whether the registration states that the bookie supports the request TELL_LAC."""
        return "TELL_LAC/1" in self._operations

    @property
    def takes_slices(self) -> bool:
        """Whether the registration states that the bookie supports the request READ_SLICES."""
        return "READ_SLICES/1" in self._operations

    @property
    def rack(self) -> str | None:
        """The rack of the bookie; None if it is not set."""
        return self.properties.get("ledgerlog.rack") or None

    @property
    def region(self) -> str | None:
        """The region of the bookie; None if it is not set."""
        return self.properties.get("ledgerlog.region") or None

    @property
    def free_bytes(self) -> int | None:
        """The free bytes that the bookie last reported; None if it reports none."""
        text = self.properties.get("ledgerlog.free_bytes", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None  # noqa: PLR2004 - fits 64 bits

    @property
    def _operations(self) -> list[str]:
        return self.properties.get("ledgerlog.ops", "").split(",")
