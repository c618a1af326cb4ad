"""Every exception that ledgerlog raises.

    LedgerLogError                     retriable, definite, fields
    ├── ConfigurationError             a bad option or setting, found before any I/O
    ├── LocalProtocolError             the caller broke a contract: append after close
    ├── RemoteProtocolError            a bookie or the store sent invalid data
    │   └── WireFormatError            bytes that no decoder accepts
    ├── LedgerError                    .ledger_id
    │   ├── LedgerNotFoundError
    │   ├── LedgerExistsError
    │   ├── LedgerClosedError
    │   ├── LedgerFencedError          outcome of pending appends is unknown: treat like a timeout
    │   ├── LedgerRecoveryError        an entry could be shown neither present nor absent
    │   ├── NeedsOperatorError         closing would lose listed or possibly acknowledged entries
    │   └── UnauthorizedError          wrong password
    ├── EntryError                     .ledger_id .entry_id
    │   ├── EntryNotFoundError         every replica reported it absent; never a guess
    │   ├── EntryUnknownError          present or absent could not be shown
    │   └── DigestMismatchError        every replica that answered had a bad digest
    ├── QuorumError
    │   ├── NotEnoughBookiesError      .wanted .available
    │   └── AddTimeoutError            no ack quorum in time; the entry may still exist
    ├── MetadataError
    │   ├── MetadataVersionError       lost the compare-and-swap
    │   ├── MetadataFormatError        a record that this version cannot read
    │   ├── MetadataUnavailableError   ZooKeeper cannot be reached
    │   └── MetadataUnknownError       a write was sent and its outcome is unknown
    ├── BookieError                    .bookie_id
    │   ├── BookieUnavailableError
    │   └── StartupError               a bookie refuses to start; .reason .path where there is one
    ├── LogError                       .log
    │   ├── LogNotFoundError  LogExistsError  LogKindError  ConcurrentCommitError
    │   ├── CommitUnknownError  ProducerFencedError  StaleCheckpointError  LeaderDeposedError
    │   ├── LeaderTimeoutError         .waited_for .timeout_ms
    │   ├── LogTimeoutError            .timeout_ms
    │   ├── SchemaMismatchError  VersionNotAvailableError  PositionNotAvailableError
    │   ├── DataLossError
    └── InternalError                  a bug of ledgerlog

`retriable`: the same call may succeed later, unchanged. `definite`: the operation certainly did
not happen; when it is false the effect may still appear. Both are class attributes that an
instance may override. All errors pickle: Spark sends them between processes.
"""

from __future__ import annotations

from typing import Any, ClassVar


class LedgerLogError(Exception):
    """Base of all errors; the message is built from `fields`.

    Attributes:
        retriable: The same call may succeed later without any change by the caller.
        definite: The operation certainly did not happen.
        fields: Values in the message, by name.
    """

    retriable: bool = False
    definite: bool = True
    hint: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        retriable: bool | None = None,
        definite: bool | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields
        if retriable is not None:
            self.retriable = retriable
        if definite is not None:
            self.definite = definite

    def __getattr__(self, name: str) -> Any:
        """Fields read as attributes: `error.ledger_id`."""
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.retriable, self.definite, self.fields)


def _rebuild(
    cls: type[LedgerLogError], message: str, retriable: bool, definite: bool, fields: dict[str, Any]
) -> LedgerLogError:
    error = cls.__new__(cls)
    LedgerLogError.__init__(error, message, retriable=retriable, definite=definite, **fields)
    return error


class ConfigurationError(LedgerLogError, ValueError):
    """A bad option or setting, found before any I/O. The message has the key and valid values."""


class LocalProtocolError(LedgerLogError):
    """The caller broke a contract; nothing was changed."""


class RemoteProtocolError(LedgerLogError):
    """A bookie or the metadata store sent something impossible."""


class WireFormatError(RemoteProtocolError, ValueError):
    """Bytes that do not match the format. The only error that decoders raise."""


class LedgerError(LedgerLogError):
    """An error of one ledger; has `ledger_id`."""


class LedgerNotFoundError(LedgerError):
    """The ledger does not exist in the metadata store, read after a sync where that matters."""


class LedgerExistsError(LedgerError):
    """The ledger id is taken."""


class LedgerClosedError(LedgerError):
    """The ledger is closed. Definite for the append that failed with it."""


class LedgerFencedError(LedgerError):
    """Another client is recovering the ledger. Pending appends may or may not survive."""

    definite = False


class LedgerRecoveryError(LedgerError):
    """Recovery could show an entry neither present nor absent; the ledger stays as it was."""

    retriable = True


class NeedsOperatorError(LedgerError):
    """Closing now could cut off entries that were acknowledged; an operator has to decide."""


class UnauthorizedError(LedgerError):
    """The password does not match the ledger's."""


class EntryError(LedgerLogError):
    """An error of one entry; has `ledger_id` and `entry_id`."""


class EntryNotFoundError(EntryError):
    """Every member of the entry's write set reported that it does not have it."""


class EntryUnknownError(EntryError):
    """Some replica could not answer, and none had the entry: it may exist."""

    retriable = True


class DigestMismatchError(EntryError):
    """No replica had the entry with a matching digest; has `bookie_ids`."""


class QuorumError(LedgerLogError):
    """Too few bookies did their part."""


class NotEnoughBookiesError(QuorumError):
    """Fewer bookies than the ensemble needs; has `wanted` and `available`."""

    retriable = True


class AddTimeoutError(QuorumError):
    """An append had no ack quorum in time. It may still appear."""

    definite = False


class MetadataError(LedgerLogError):
    """An error of the metadata store."""


class MetadataVersionError(MetadataError):
    """Another client changed the record first; read it and decide once more."""

    retriable = True


class MetadataFormatError(MetadataError):
    """A record in a format that this version cannot read; it is not changed."""


class MetadataUnavailableError(MetadataError):
    """The metadata store could not be reached, and nothing was sent."""

    retriable = True


class MetadataUnknownError(MetadataError):
    """A write was sent and the connection was lost: it may have happened."""

    retriable = True
    definite = False


class BookieError(LedgerLogError):
    """An error of one bookie; has `bookie_id`."""


class BookieUnavailableError(BookieError):
    """The bookie cannot be reached, or its address is unknown."""

    retriable = True
    definite = False


class StartupError(BookieError):
    """A bookie refuses to start; nothing that it stores was changed."""


class LogError(LedgerLogError):
    """An error of one log; has `log`."""


class LogNotFoundError(LogError):
    """The log does not exist."""


class LogExistsError(LogError):
    """The name is taken."""


class LogKindError(LogError):
    """A leader log was used as a transactional one, or a transactional one as a leader log."""


class ConcurrentCommitError(LogError):
    """Another producer committed since the job was planned."""


class CommitUnknownError(LogError):
    """The commit was sent and its outcome is unknown; a retry of the same commit is safe."""

    retriable = True
    definite = False


class ProducerFencedError(LogError):
    """A later run of the same producer took over; this one can commit nothing."""


class LeaderTimeoutError(LogError):
    """A leader log was not taken over, or not rolled, in time."""

    retriable = True


class LogTimeoutError(LogError):
    """A log was not changed in time; this call makes no more changes.

    Nothing was changed, unless `definite` is false. A commit that may have succeeded raises
    `CommitUnknownError`.
    """

    retriable = True


class LeaderDeposedError(LogError):
    """Another leader took over the log; records before `end_offset` are safe, others unknown."""

    definite = False


class StaleCheckpointError(LogError):
    """The batch id is lower than the log's last one; has `batch_id` and `last_batch_id`."""


class SchemaMismatchError(LogError):
    """Rows that cannot be stored in the log; names column, expected and got."""


class VersionNotAvailableError(LogError):
    """The version was truncated or its history expired; has `oldest`."""


class PositionNotAvailableError(LogError):
    """The position was truncated, or does not exist yet; has `oldest_offset`, `end_offset`."""


class DataLossError(LogError):
    """Listed rows that no bookie has; names ledger and entries."""


class InternalError(LedgerLogError):
    """A bug of ledgerlog. Please report it with the events in its message."""

    definite = False
