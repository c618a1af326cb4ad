"""Requests of the log's machines to the store, and the replies.

A request has a number in `request`, and the host answers it with exactly one reply that repeats the
number. A machine ends with one indication, `Finished` or `Failed`. An outcome is a value of
`MetadataOutcome`. For a read, `GONE` means that the node does not exist on the replica of the store
that answered. This replica may lag, so `GONE` proves nothing unless the machine sent a `Sync`
before the read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.state.pages import PageRequest
from ledgerlog_spark.protocol.log.state.records import LogHead, ProducerRecord

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class LogReply:
    """The outcome of a request, with the number of the request."""

    request: int
    outcome: MetadataOutcome


@dataclass(frozen=True, slots=True)
class Synced(LogReply):
    """Reply to `Sync`. Later reads return a state that is at least as new as the request."""


@dataclass(frozen=True, slots=True)
class HeadRead(LogReply):
    """Reply to `ReadHead`. `now_ms` is the store's time, or 0 when no time was requested."""

    head: Versioned[LogHead] | None = None
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class ProducerRead(LogReply):
    """Reply to `ReadProducer`. `now_ms` has the same meaning as in `HeadRead`."""

    producer: Versioned[ProducerRecord] | None = None
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class RegisteredRead(LogReply):
    """Reply to `ReadRegistered`, with the ledger ids in ascending order."""

    ledger_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PagesRead(LogReply):
    """Reply to `ReadPages`, with the records of each page, in the order of the request."""

    pages: tuple[tuple[Any, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PasswordRead(LogReply):
    """Reply to `ReadPassword`."""

    password: bytes = field(repr=False, default=b"")


@dataclass(frozen=True, slots=True)
class PagesWritten(LogReply):
    """Reply to `WritePages`."""

    version: Version | None = None


@dataclass(frozen=True, slots=True)
class Written(LogReply):
    """Reply to every other write, with the new version of the head or of the producer record."""

    version: Version | None = None


@dataclass(frozen=True, slots=True)
class StagedRead(LogReply):
    """Reply to `ReadStaged`: when each ledger was registered, and the time by the store's clock."""

    registered_ms: Mapping[int, int] = field(default_factory=dict)
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class RegistrationsRead(LogReply):
    """Reply to `ReadRegistrations`.

    For each producer, it has the name, the record, and the requested ledgers that it registered.
    """

    registrations: tuple[tuple[str, Versioned[ProducerRecord], tuple[int, ...]], ...] = ()


class TimeNeeded(Enum):
    """Which time a reply contains. The time is never ahead of the store's clock (LOGS.md#G12)."""

    NONE = "the reply contains no time"
    RECENT = "the time is computed from the last answer of the store, for the time of a change"
    EXACT = "the time is read from the store, for deletion by age"


@dataclass(frozen=True, slots=True)
class LogRequest(Generic[Reply]):
    """A request of a machine to its host. The type parameter is the type of the reply."""

    request: int = field(default=-1, kw_only=True)


@dataclass(frozen=True, slots=True)
class Sync(LogRequest[Synced]):
    """Ensure that later reads return a state that is at least as new as this request."""


@dataclass(frozen=True, slots=True)
class ReadHead(LogRequest[HeadRead]):
    """Read the head."""

    time: TimeNeeded = TimeNeeded.NONE


@dataclass(frozen=True, slots=True)
class ReadProducer(LogRequest[ProducerRead]):
    """Read the record of a producer."""

    app: str
    time: TimeNeeded = TimeNeeded.NONE


@dataclass(frozen=True, slots=True)
class ReadRegistered(LogRequest[RegisteredRead]):
    """Read the ledgers that are registered under a producer."""

    app: str


@dataclass(frozen=True, slots=True)
class ReadPages(LogRequest[PagesRead]):
    """Read pages. The outcome is `GONE` when a page is missing."""

    pages: tuple[PageRequest, ...]


@dataclass(frozen=True, slots=True)
class ReadPassword(LogRequest[PasswordRead]):
    """Read the password in the metadata of a ledger.

    The outcome is `GONE` when the ledger does not exist, or its metadata has no password.
    """

    ledger_id: int


@dataclass(frozen=True, slots=True)
class WritePages(LogRequest[PagesWritten]):
    """Create the node `pages/<token>`, and the pages under it.

    The outcome is `CONFLICT` if the node already exists.
    """

    token: str
    pages: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class WriteHead(LogRequest[Written]):
    """Write the head and the producer record in one transaction, which compares their versions.

    The transaction also compares the version of the pages' node. If one version differs, nothing
    changes. `listed` are ledgers of a leader that the new head adds to the list. If one of these
    ledgers was deleted or is being deleted, the outcome is `GONE`. This outcome proves that no
    transaction that lists this ledger has succeeded, and that none can succeed later. `unlisted`
    are ledgers that no retained version names any more.
    """

    token: str
    head: LogHead
    head_version: Version
    app: str | None = None
    producer: ProducerRecord | None = None
    producer_version: Version | None = None
    pages_version: Version | None = None
    unlisted: tuple[int, ...] = ()
    listed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteProducer(LogRequest[Written]):
    """Create (`version` None) or replace a producer record.

    The same transaction deletes the registrations of the ledgers in `deregistered` and `released`.
    Each ledger in `deregistered` also gets a mark `unlisted/<ledger>`. A marked ledger is deleted
    later.
    The ledgers in `released` are already listed, so they get no mark.
    """

    app: str
    producer: ProducerRecord
    version: Version | None
    deregistered: tuple[int, ...] = ()
    released: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadStaged(LogRequest[StagedRead]):
    """Read which ledgers a producer registered, and the time of each registration."""

    app: str


@dataclass(frozen=True, slots=True)
class ReadRegistrations(LogRequest[RegistrationsRead]):
    """Read the producers that registered these ledgers."""

    ledger_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TouchPages(LogRequest[Written]):
    """Change the node `pages/<token>`, so that a commit that compares the node's version fails.

    The outcome is `GONE` when the node does not exist.
    """

    token: str


@dataclass(frozen=True, slots=True)
class DeletePages(LogRequest[Written]):
    """Delete the pages below the node `pages/<token>`, except pages whose number is in `kept`.

    If `kept` is empty, delete the node too.
    """

    token: str
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropLedger(LogRequest[Written]):
    """Seal the ledger, delete it, and then delete its mark `unlisted/<ledger>`.

    If the ledger does not exist, this is no error. If the time of the mark is not `marked_ms` any
    more, nothing is deleted and the outcome is `CONFLICT`. In this case, the mark was renewed, so
    the time until the deletion has started again. `marked_ms` is None for a ledger without a mark.
    """

    ledger_id: int
    marked_ms: int | None = None


R_co = TypeVar("R_co", covariant=True)
"""The result of a machine."""


@dataclass(frozen=True, slots=True)
class Finished(Generic[R_co]):
    """The machine has ended with a result."""

    result: R_co


@dataclass(frozen=True, slots=True)
class Failed:
    """The machine has failed. If `error.definite` is false, the log may have changed."""

    error: LedgerLogError


LogEffect = LogRequest[Any] | Finished[R_co] | Failed

LogEffects = list[LogEffect[R_co]]
"""The effects of a machine whose result has the type `R_co`."""
