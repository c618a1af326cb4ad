"""Decides whether a bookie that may have lost records may deny that an entry exists.

Each possible loss begins a new *epoch* of doubt about the directory. To *clear* a ledger means to
store that it lost no entries up to an epoch, or that a repair has fetched its lost entries. A
ledger is in *limbo* until it is cleared up to the newest epoch. For a ledger in limbo, the bookie
stores adds and returns entries that it has, but never denies that an entry exists. If a request
needs an entry that the bookie does not have, the last entry or the LAC, the bookie answers
IO_ERROR, which means "unknown".

A ledger leaves limbo in two ways. A repair (`repair`) fetches from other bookies the entries that
this bookie must hold. Or the record of the ledger is newer than the loss, so the ledger lost
nothing. Only transactions of the metadata store can prove this; ids and clocks cannot. For each
epoch, the bookie stores the id of a transaction that began after the epoch was durable. A record
that a later transaction created is newer than the loss.

A fence may be lost too, so `check_epoch` of `ledger_gate` increases with the epoch. After that, the
bookie reads the record of a ledger before it stores the first add of this ledger. An OPEN ledger
needs no fence, because a recovery writes IN_RECOVERY before it fences, and no ledger becomes OPEN
again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import Enum

from bookie_server.ports import Standing
from ledgerlog_spark.model import LedgerMetadata, LedgerState


@dataclass(frozen=True, slots=True)
class Doubt:
    """The doubt about one directory. A change is durable before the bookie acts on it.

    Attributes:
        epoch: Number of possible losses so far.
        cleared: Epoch up to which ledgers without a state on this bookie are cleared.
        transaction: Id of a transaction that began after `epoch` was durable; 0 if there is none.
    """

    epoch: int = 0
    cleared: int = 0
    transaction: int = 0

    @property
    def is_over(self) -> bool:
        """Whether ledgers without a state are cleared."""
        return self.cleared >= self.epoch

    @property
    def may_be_repaired(self) -> bool:
        """Whether a repair may begin.

        The epoch must first be in the metadata store, so that re-replication can notice it.
        """
        return self.transaction > 0

    def raised(self, known_epoch: int = 0) -> Doubt:
        """Return the doubt after one more possible loss.

        The `transaction` of the result is 0, because the bookie has no transaction yet that began
        after this loss. `known_epoch` is the epoch in the bookie's record. It is larger than
        `epoch` if the directory is an older copy. No epoch is used twice, so each comparison of
        epochs shows the loss.
        """
        return Doubt(max(self.epoch, known_epoch) + 1, self.cleared)

    def dated(self, epoch: int, transaction: int) -> Doubt:
        """Return the doubt with a transaction that began after `epoch` was durable."""
        return replace(self, transaction=transaction) if epoch == self.epoch else self

    def ended(self, epoch: int) -> Doubt:
        """Return the doubt after a repair that began in `epoch` has checked all listed ledgers."""
        return replace(self, cleared=max(self.cleared, epoch))

    def to_json(self) -> dict[str, int]:
        """Return the fields for the MANIFEST."""
        return asdict(self)


NO_DOUBT = Doubt()
"""The doubt of a directory that never had a possible loss."""


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    """The state that a start finds in the directory and in the metadata store.

    Attributes:
        has_manifest: Whether the directory has a MANIFEST. An empty directory has none.
        is_known: Whether the metadata store has a cookie or another node of the bookie.
        starts: Counter in the MANIFEST, which increases at each start, and while data is written.
        node_starts: The same counter in the bookie's node.
        owes_sync: Whether the last run acknowledged adds before their sync, and did not end
            cleanly.
        is_proved: Whether memory of the operating system proves that this run lost nothing.
        has_lost_record: Whether there is a damaged record of an unknown ledger.
    """

    has_manifest: bool
    is_known: bool
    starts: int
    node_starts: int
    owes_sync: bool
    is_proved: bool
    has_lost_record: bool


def raises_doubt(found: FoundDirectory) -> bool:
    """Return whether an earlier run may have acknowledged records that are lost now."""
    if not found.has_manifest:
        return found.is_known
    is_older_copy = found.starts < found.node_starts
    is_unproved = found.owes_sync and not found.is_proved
    return is_older_copy or is_unproved or found.has_lost_record


class Denial(Enum):
    """The answer about an entry, a last entry or a LAC that the bookie does not have."""

    ABSENT = "absent"
    UNKNOWN = "unknown"
    COMPARE = "unknown, unless the record of the ledger is newer than the loss"


def is_in_limbo(cleared_epoch: int | None, doubt: Doubt) -> bool:
    """Return whether a ledger may have lost records.

    If the ledger has no state, `cleared_epoch` is None.
    """
    return (doubt.cleared if cleared_epoch is None else cleared_epoch) < doubt.epoch


def denial(cleared_epoch: int | None, doubt: Doubt, compared_epoch: int) -> Denial:
    """Return the answer about an entry, a last entry or a LAC that the bookie does not have.

    Args:
        cleared_epoch: The epoch up to which the ledger is cleared; None if it has no state.
        doubt: The doubt about the directory.
        compared_epoch: The epoch whose loss was compared with the creation of the ledger since the
            start of the bookie; 0 if there was no comparison.
    """
    if not is_in_limbo(cleared_epoch, doubt):
        return Denial.ABSENT
    return Denial.COMPARE if doubt.transaction and compared_epoch < doubt.epoch else Denial.UNKNOWN


def first_cleared_epoch(doubt: Doubt) -> int:
    """Return the epoch up to which a ledger is cleared when the bookie makes a state for it."""
    return doubt.cleared


def cleared_by_creation(created: int, before: Doubt) -> int:
    """Return the epoch up to which a newer record clears a ledger; 0 if the record is not newer.

    Args:
        created: Id of the transaction that created the record.
        before: The doubt when the bookie requested the record. A later loss is not covered.
    """
    return before.epoch if 0 < before.transaction < created else 0


def standing_of(record: LedgerMetadata | None, bookie_id: str) -> Standing:
    """Return a bookie's part in a ledger. `record` is None if the ledger does not exist."""
    if record is None or record.state is not LedgerState.OPEN:
        return Standing.NOT_WRITABLE
    is_mine = bookie_id in record.last_fragment.ensemble
    return Standing.OPEN_WITH_ME if is_mine else Standing.OPEN_WITHOUT_ME


class AddCheck(Enum):
    """The decision on the first regular add of a ledger after a possible loss."""

    TAKE = "take"
    FENCE = "fence the ledger, and refuse the add when the fence is durable"
    REFUSE = "refuse, and remember nothing"
    READ_AGAIN = "repeat the read of the record"


def check_add(standing: Standing, *, before: Doubt, now: Doubt) -> AddCheck:
    """Decide on the first regular add of a ledger whose fence may be lost.

    Args:
        standing: The bookie's part in the ledger.
        before: The doubt when the bookie requested the record.
        now: The doubt when the bookie got the answer.
    """
    if standing is Standing.UNKNOWN:
        return AddCheck.REFUSE
    if before.epoch != now.epoch:
        return AddCheck.READ_AGAIN
    if standing is Standing.NOT_WRITABLE:
        return AddCheck.FENCE
    return AddCheck.TAKE if standing is Standing.OPEN_WITH_ME else AddCheck.REFUSE
