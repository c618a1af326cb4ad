"""The exceptions of ledgerlog.

    LedgerLogError                     retriable, definite, fields
    ├── ConfigurationError             a wrong option, setting or argument
    ├── LocalProtocolError             the caller used the API wrongly: append after close
    ├── RemoteProtocolError            a bookie or the store sent invalid data
    │   └── WireFormatError            bytes that no decoder accepts
    ├── LedgerError                    .ledger_id
    │   ├── LedgerNotFoundError
    │   ├── LedgerExistsError
    │   ├── LedgerClosedError
    │   ├── LedgerFencedError          the outcome of pending appends is unknown
    │   ├── LedgerRecoveryError        it is unknown whether an entry exists
    │   ├── NeedsOperatorError         closing would lose listed or possibly acknowledged entries
    │   └── UnauthorizedError          wrong password
    ├── EntryError                     .ledger_id .entry_id
    │   ├── EntryNotFoundError         every replica reported that it does not have the entry
    │   ├── EntryUnknownError          it is unknown whether the entry exists
    │   └── DigestMismatchError        every replica that answered had a bad digest
    ├── QuorumError
    │   ├── NotEnoughBookiesError      .wanted .available
    │   └── AddTimeoutError            no ack quorum in time; the entry may still exist
    ├── MetadataError
    │   ├── MetadataVersionError       another client changed the node first
    │   ├── MetadataFormatError        a node that this release cannot read
    │   ├── MetadataUnavailableError   ZooKeeper cannot be reached
    │   └── MetadataUnknownError       a write was sent and its outcome is unknown
    ├── BookieError                    .bookie_id
    │   ├── BookieUnavailableError
    │   └── StartupError               a bookie refuses to start; .reason, sometimes .path
    ├── LogError                       .log
    │   ├── LogNotFoundError  LogExistsError  LogKindError  ConcurrentCommitError
    │   ├── CommitUnknownError  ProducerFencedError  StaleCheckpointError  LeaderDeposedError
    │   ├── LeaderTimeoutError         .waited_for .timeout_ms
    │   ├── LogTimeoutError            .timeout_ms
    │   ├── SchemaMismatchError  VersionNotAvailableError  PositionNotAvailableError
    │   └── DataLossError              rows to read were deleted, or data is lost
    └── InternalError                  a bug of ledgerlog

If `retriable` is true, the same call may succeed later without any change by the caller. If
`definite` is true, the operation certainly did not happen. If `definite` is false, the operation
may have happened or may still happen. `retriable` and `definite` are class attributes that an
instance may override. All errors can be pickled, because Spark sends them between processes.
"""

from __future__ import annotations

from typing import Any, ClassVar


class LedgerLogError(Exception):
    """Base class of all errors of ledgerlog.

    Attributes:
        retriable: Whether the same call may succeed later without any change by the caller.
        definite: Whether the operation certainly did not happen. If false, the operation may have
            happened or may still happen.
        fields: The values in the message, by name. Each value is also an attribute, for example
            `error.ledger_id`.
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
        """Return a field as an attribute, for example `error.ledger_id`."""
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
    """An option, a setting or an argument is wrong.

    The message contains its name, and usually the valid values.
    """


class LocalProtocolError(LedgerLogError):
    """The caller used the API wrongly. If `definite` is true, nothing was changed."""


class RemoteProtocolError(LedgerLogError):
    """A bookie or the metadata store sent data that the protocol does not allow."""


class WireFormatError(RemoteProtocolError, ValueError):
    """Bytes do not match their format. Decoders raise only this error and `MetadataFormatError`."""


class LedgerError(LedgerLogError):
    """An error of one ledger, with the field `ledger_id`."""


class LedgerNotFoundError(LedgerError):
    """The ledger does not exist in the metadata store."""


class LedgerExistsError(LedgerError):
    """The ledger id is already used."""


class LedgerClosedError(LedgerError):
    """The ledger is closed. If `definite` is true, the refused append was not stored."""


class LedgerFencedError(LedgerError):
    """Another client recovers the ledger. Pending appends may or may not stay in the ledger."""

    definite = False


class LedgerRecoveryError(LedgerError):
    """Recovery could not find out whether an entry exists, so the ledger is not closed."""

    retriable = True


class NeedsOperatorError(LedgerError):
    """A close of the ledger could lose acknowledged entries, so an operator has to decide."""


class UnauthorizedError(LedgerError):
    """The password is not the password of the ledger, or of the log."""


class EntryError(LedgerLogError):
    """An error of one entry, with the fields `ledger_id` and `entry_id`."""


class EntryNotFoundError(EntryError):
    """Every bookie of the entry's write set reported that it does not have the entry."""


class EntryUnknownError(EntryError):
    """No replica returned the entry, but some replicas gave no answer, so the entry may exist."""

    retriable = True


class DigestMismatchError(EntryError):
    """No replica had the entry with a matching digest. The error has the field `bookie_ids`."""


class QuorumError(LedgerLogError):
    """An operation failed because too few bookies were available, or because too few answered."""


class NotEnoughBookiesError(QuorumError):
    """Fewer bookies are available (`available`) than the ensemble needs (`wanted`)."""

    retriable = True


class AddTimeoutError(QuorumError):
    """An append did not reach its ack quorum in time. The entry may still appear in the ledger."""

    definite = False


class MetadataError(LedgerLogError):
    """An error of the metadata store."""


class MetadataVersionError(MetadataError):
    """Another client changed the node first. The caller has to read the node and decide again."""

    retriable = True


class MetadataFormatError(MetadataError):
    """The format of a node is unknown to this release. The node is not changed."""


class MetadataUnavailableError(MetadataError):
    """The metadata store could not be reached. If `definite` is true, nothing was changed."""

    retriable = True


class MetadataUnknownError(MetadataError):
    """A write was sent, and then the connection was lost. The write may have happened."""

    retriable = True
    definite = False


class BookieError(LedgerLogError):
    """An error of one bookie, with the field `bookie_id`."""


class BookieUnavailableError(BookieError):
    """The bookie cannot be reached, or its address is unknown."""

    retriable = True
    definite = False


class StartupError(BookieError):
    """The bookie refuses to start. Its stored data was not changed."""


class LogError(LedgerLogError):
    """An error of one log, with the field `log`."""


class LogNotFoundError(LogError):
    """The log does not exist."""


class LogExistsError(LogError):
    """A log of this name already exists."""


class LogKindError(LogError):
    """A leader log was used as a transactional log, or a transactional log as a leader log."""


class ConcurrentCommitError(LogError):
    """Another commit conflicts with this commit, or the log's id or version is unexpected."""


class CommitUnknownError(LogError):
    """The commit was sent and its outcome is unknown; a retry of the same commit is safe."""

    retriable = True
    definite = False


class ProducerFencedError(LogError):
    """This run cannot commit: a later run took over, or the producer or its ledgers expired."""


class LeaderTimeoutError(LogError):
    """This client did not become the leader of a log in time, or did not roll the log in time."""

    retriable = True


class LogTimeoutError(LogError):
    """The change of a log took too long. After this error, the call makes no further change.

    If `definite` is true, nothing was changed. A commit that may have succeeded raises
    `CommitUnknownError` instead.
    """

    retriable = True


class LeaderDeposedError(LogError):
    """Another leader took over the log. The log may lack the records from `end_offset` on."""

    definite = False


class StaleCheckpointError(LogError):
    """The batch `batch_id` is older than the log's last batch, or belongs to another query."""


class SchemaMismatchError(LogError):
    """Rows do not fit the schema of the log. The message names the column and both types."""


class VersionNotAvailableError(LogError):
    """The version never existed, or does not exist any more.

    The field `oldest` is the oldest version.
    """


class PositionNotAvailableError(LogError):
    """The position is not between the error's fields `oldest_offset` and `end_offset`."""


class DataLossError(LogError):
    """Rows that must be read were truncated, overwritten or deleted, or data of the log is lost."""


class InternalError(LedgerLogError):
    """A bug of ledgerlog. Please report the bug with the traceback and the attribute `events`."""

    definite = False
