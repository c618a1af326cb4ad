"""What the log's machines ask of the store (requests) and what they are told (replies).

A request carries a number in `request`, and the host answers it with exactly one reply that repeats
the number. A machine ends with one indication, `Finished` or `Failed`. Outcomes are those of
`messages.MetadataOutcome`; of a read, `GONE` means that there is no such record (as far as this
replica of the store knows, so machines `Sync` before they conclude anything from it).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ledgerlog_spark.errors import LedgerLogError
    from ledgerlog_spark.model import Version, Versioned
    from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
    from ledgerlog_spark.protocol.log.state.pages import PageRequest
    from ledgerlog_spark.protocol.log.state.records import LogHead, ProducerRecord


Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class LogReply:
    """What became of a request, by its number."""

    request: int
    outcome: MetadataOutcome


@dataclass(frozen=True, slots=True)
class Synced(LogReply):
    """Reply to `Sync`."""


@dataclass(frozen=True, slots=True)
class HeadRead(LogReply):
    """Reply to `ReadHead`; `now_ms` is the store's clock, 0 when no time was asked for."""

    head: Versioned[LogHead] | None = None
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class ProducerRead(LogReply):
    """Reply to `ReadProducer`; `now_ms` as of `HeadRead`."""

    producer: Versioned[ProducerRecord] | None = None
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class RegisteredRead(LogReply):
    """Reply to `ReadRegistered`; ledger ids, rising."""

    ledger_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PagesRead(LogReply):
    """Reply to `ReadPages`; the records of each page, in the order asked for."""

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
    """Reply to every other write; the new version of the head or the producer record."""

    version: Version | None = None


@dataclass(frozen=True, slots=True)
class StagedRegistration:
    """A registration, and when it was made by the store's clock."""

    ledger_id: int
    registered_ms: int


@dataclass(frozen=True, slots=True)
class StagedRead(LogReply):
    """Reply to `ReadStaged`; `now_ms` by the store's clock."""

    ledgers: tuple[StagedRegistration, ...] = ()
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class RegistrationsRead(LogReply):
    """Reply to `ReadRegistrations`: producers in order of name, each with its ledgers of those."""

    registrations: tuple[tuple[str, Versioned[ProducerRecord], tuple[int, ...]], ...] = ()


class AskedTime(Enum):
    """What time a reply is to name. It is the store's, and never ahead of it (LOGS.md#G12)."""

    NONE = "none"
    RECENT = "computed from the last answer of the store: for dates"
    EXACT = "read from the store: for deletion by age"


@dataclass(frozen=True, slots=True)
class LogRequest(Generic[Reply]):
    """What a machine asks of its host, and the type of the reply; the machine numbers it."""

    request: int = field(default=-1, kw_only=True)


@dataclass(frozen=True, slots=True)
class Sync(LogRequest[Synced]):
    """Make later reads at least as new as now; answered by `Synced`."""


@dataclass(frozen=True, slots=True)
class ReadHead(LogRequest[HeadRead]):
    """Answered by `HeadRead`."""

    time: AskedTime = AskedTime.NONE


@dataclass(frozen=True, slots=True)
class ReadProducer(LogRequest[ProducerRead]):
    """Answered by `ProducerRead`."""

    app: str
    time: AskedTime = AskedTime.NONE


@dataclass(frozen=True, slots=True)
class ReadRegistered(LogRequest[RegisteredRead]):
    """Which ledgers are registered under a producer; answered by `RegisteredRead`."""

    app: str


@dataclass(frozen=True, slots=True)
class ReadPages(LogRequest[PagesRead]):
    """Answered by `PagesRead`; `GONE` when one of them is missing."""

    pages: tuple[PageRequest, ...]


@dataclass(frozen=True, slots=True)
class ReadPassword(LogRequest[PasswordRead]):
    """The password in the record of a ledger; answered by `PasswordRead`.

    `GONE` when there is no such record, or it does not say.
    """

    ledger_id: int


@dataclass(frozen=True, slots=True)
class WritePages(LogRequest[PagesWritten]):
    """Make `pages/<token>` and the pages under it; answered by `PagesWritten`.

    `CONFLICT` when the node exists already.
    """

    token: str
    pages: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class WriteHead(LogRequest[Written]):
    """One transaction: head, producer record and pages' node at these versions, or nothing.

    Answered by `Written`. `GONE`, and nothing changed, when a ledger of `listed` was deleted or is
    being deleted: nothing that lists it got through, or ever gets through.

    Attributes:
        token: The head's; also the name of the pages' node.
        head: The new head.
        head_version: What it replaces.
        app: The producer, None when its record is not part of the change.
        producer: Its new record.
        producer_version: What that replaces.
        pages_version: Of `pages/<token>` as made by `WritePages`, None without pages.
        unlisted: Ledgers that no retained version names from now on.
        listed: Ledgers that a leader made, and that the list names from now on.
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
    """Create (`version` None) or replace a producer record; answered by `Written`.

    Attributes:
        deregistered: Registrations that the same transaction deletes, each leaving
            `unlisted/<ledger>` behind, so that the ledger's deletion is not forgotten.
        released: The same for ledgers that are listed, and without a mark.
    """

    app: str
    producer: ProducerRecord
    version: Version | None
    deregistered: tuple[int, ...] = ()
    released: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadStaged(LogRequest[StagedRead]):
    """Which ledgers are registered under a producer, and since when; answered by `StagedRead`."""

    app: str


@dataclass(frozen=True, slots=True)
class ReadRegistrations(LogRequest[RegistrationsRead]):
    """Under which producers these ledgers are registered; answered by `RegistrationsRead`."""

    ledger_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TouchPages(LogRequest[Written]):
    """Change `pages/<token>`, so that a commit that checks it fails; answered by `Written`.

    `GONE` when there is no such node.
    """

    token: str


@dataclass(frozen=True, slots=True)
class DeletePages(LogRequest[Written]):
    """Delete all pages of `pages/<token>` but `kept`, the node too when none is kept.

    Answered by `Written`.
    """

    token: str
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DropLedger(LogRequest[Written]):
    """Seal the ledger, delete it, then its mark `unlisted/<ledger>`; answered by `Written`.

    A ledger that is gone already is fine. `CONFLICT`, and nothing done, when its mark is not of
    `marked_ms` any more: it was renewed, so a time of grace began anew.

    Attributes:
        ledger_id: The ledger, which nothing can list any more.
        marked_ms: When the mark was made that made it due; None for a ledger without one.
    """

    ledger_id: int
    marked_ms: int | None = None


R_co = TypeVar("R_co", covariant=True)
"""The result of a machine."""


@dataclass(frozen=True, slots=True)
class Finished(Generic[R_co]):
    """The machine is done and has a result."""

    result: R_co


@dataclass(frozen=True, slots=True)
class Failed:
    """The machine is done and has none; the error says whether anything may have happened."""

    error: LedgerLogError


LogEffect = LogRequest[Any] | Finished[R_co] | Failed

LogEffects = list[LogEffect[R_co]]
"""The effects of a machine with that result."""
