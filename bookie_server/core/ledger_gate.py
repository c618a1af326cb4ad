"""Decides which requests are accepted, and when a bookie may deny that an entry exists.

The functions do no I/O. The storage carries out the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from hmac import compare_digest

from bookie_server.core import doubt as rules
from bookie_server.core.doubt import NO_DOUBT, Doubt
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.requests import (
    ID_MAX,
    StoredAdd,
    StoredBatchRead,
    StoredRead,
    StoredSliceRead,
)
from bookie_server.errors import StorageError, TooManyFilesError
from ledgerlog_spark.model import MASTER_KEY_SIZE_BYTES, NO_ENTRY, Code


class Wait(Enum):
    """The reason why the decision on an add is deferred."""

    METADATA_CHECK = "metadata_check"


@dataclass(slots=True)
class Health:
    """The state of the whole storage, on which the decisions of this module depend."""

    has_failed: bool = False  # whether a write or sync failed; then adds and fences are refused
    is_writable: bool = True  # whether there is a file for regular adds
    is_disk_full: bool = False  # whether the disk usage is too high for regular adds
    is_set_read_only: bool = False  # whether an administrator has refused regular adds
    has_room: bool = True  # whether there is room for recovery adds and control records
    check_epoch: int = 0  # a ledger verified in an earlier epoch needs a new metadata check
    doubt: Doubt = NO_DOUBT  # the possible losses of the directory
    files_in_doubt: set[int] = field(default_factory=set)  # ids of files without a usable index
    # ids of files that lost a record of an unknown ledger; `doubt` covers this loss
    damaged_files: set[int] = field(default_factory=set)
    # if a ledger up to this id has no state, the bookie may have forgotten its fence
    highest_dropped_ledger_id: int = -1
    is_closing: bool = False  # whether the storage stops; then further adds get IO_ERROR
    add_period: int = 0  # number of the current period (core/release.py)
    in_flight_bytes: int = 0  # bytes of accepted and deferred adds that have no answer yet

    @property
    def is_short_of_room(self) -> bool:
        """Whether regular adds are refused because the device lacks room."""
        return not self.is_writable or self.is_disk_full

    @property
    def unknown_files(self) -> set[int]:
        """Ids of the files that may have held entries which their indexes do not contain.

        When the doubt is over, damaged files are not included, because their lost entries are
        repaired.
        """
        if self.doubt.is_over:
            return self.files_in_doubt
        return self.files_in_doubt | self.damaged_files

    @property
    def accepts_adds(self) -> bool:
        """Whether there is room for regular adds, and no administrator has refused them."""
        return self.is_writable and not self.is_disk_full and not self.is_set_read_only


def admit_add(  # noqa: PLR0911 - one line for each reason, in the order they are checked
    request: StoredAdd, state: HeldLedger | None, health: Health, free_bytes: int
) -> Code | Wait | None:
    """Return None to accept a well-formed add, a code to refuse it, or a `Wait` to defer it."""
    if health.has_failed:
        return Code.IO_ERROR
    if state is not None and not key_fits(state, request.master_key):
        return Code.UNAUTHORIZED
    is_regular = not request.is_recovery
    if is_regular and state is not None and state.is_fenced:
        return Code.FENCED
    if not (health.accepts_adds if is_regular else health.has_room):
        return Code.READ_ONLY
    if len(request.body) > free_bytes:
        return Code.BUSY
    if is_regular and needs_check(request.ledger_id, state, health):
        return Wait.METADATA_CHECK
    return None


def needs_check(ledger_id: int, state: HeldLedger | None, health: Health) -> bool:
    """Return whether the ledger's fence may have been lost since the last metadata check."""
    if state is None:
        return health.check_epoch > 0 or ledger_id <= health.highest_dropped_ledger_id
    return state.is_unverified or state.check_epoch < health.check_epoch


def may_forget(
    state: HeldLedger, *, now_s: int, keep_s: int, durable_ticket: int, doubt: Doubt = NO_DOUBT
) -> bool:
    """Return whether a dropped ledger may be forgotten, if no file holds records of the ledger.

    The tombstone must be old enough, and all records of the ledger must be durable. The caller must
    check that no file holds records of the ledger, because without the tombstone, the deleted
    entries in such a file could be read again. If the clock is wrong, the tombstone is forgotten
    too early or too late. Forgetting it too early is safe, because the first add of a forgotten
    ledger waits for the metadata check.

    A released ledger in limbo is not forgotten. It may still exist, and without its state, the
    bookie could deny entries that are lost.
    """
    if not state.is_deleted and is_in_limbo(state, doubt):
        return False
    is_settled = state.last_ticket <= durable_ticket
    return state.is_dropped and is_settled and now_s - state.dropped_s >= keep_s


def admit_read(request: StoredRead | StoredBatchRead) -> Code | None:
    """Check the ids and the key of a read. Return None to accept it, or a code to refuse it."""
    if isinstance(request, StoredRead):
        entry_id, lowest = request.entry_id, NO_ENTRY
    else:
        entry_id, lowest = request.first_entry_id, 0
    key = request.fence_key
    if not 0 <= request.ledger_id <= ID_MAX or not lowest <= entry_id <= ID_MAX:
        return Code.BAD_REQUEST
    if key is not None and len(key) != MASTER_KEY_SIZE_BYTES:
        return Code.BAD_REQUEST
    return None


def admit_slice_read(request: StoredSliceRead) -> Code | None:
    """Check the ids of a read of slices. Return None to accept it, or a code to refuse it.

    The decoder has checked that ids and ranges are in ascending order.
    """
    first, last = request.entries[0][0], request.entries[-1][0]
    if not 0 <= request.ledger_id <= ID_MAX or first < 0 or last > ID_MAX:
        return Code.BAD_REQUEST
    return None


def admit_fence(key: bytes, state: HeldLedger | None, health: Health) -> Code | None:
    """Return None to accept a fence, or a code to refuse it.

    If the ledger is already fenced, another fence needs no disk space.
    """
    if state is not None and not key_fits(state, key):
        return Code.UNAUTHORIZED
    if health.has_failed:
        return Code.IO_ERROR
    if not health.has_room and (state is None or not state.is_fenced):
        return Code.IO_ERROR
    return None


def barrier_of(state: HeldLedger) -> int:
    """Return the ticket after which a fence or a recovery read of the ledger is answered.

    A fence or recovery read waits until all adds accepted earlier for the ledger are durable, so
    the answer includes these adds (PROTOCOL.md#F2). In contrast, an add, a LAC or a deletion is
    answered after its own record is synced (`on_done` of a `JournalRecord`).
    """
    return state.last_ticket


def key_fits(state: HeldLedger, key: bytes) -> bool:
    """Return whether `key` is the ledger's master key, or the ledger has no key yet."""
    return state.master_key is None or compare_digest(state.master_key, key)


def is_in_limbo(state: HeldLedger | None, doubt: Doubt, newer_epoch: int = 0) -> bool:
    """Return whether a ledger may have lost records.

    A ledger without a state is cleared up to `newer_epoch` if its record is newer than the loss of
    this epoch.
    """
    cleared = max(newer_epoch, rules.first_cleared_epoch(doubt))
    return rules.is_in_limbo(cleared if state is None else state.cleared_epoch, doubt)


def may_say_absent(state: HeldLedger | None, health: Health, newer_epoch: int = 0) -> bool:
    """Return whether the bookie may answer NO_ENTRY, NO_LEDGER or a LAC.

    The result is False while the ledger is in limbo or is being released, and after a failed write
    or sync. It is also False while the index of a file is being rebuilt, because the file may have
    entries of any ledger.
    """
    if health.has_failed or health.files_in_doubt:
        return False
    is_hidden = state is not None and state.is_hidden
    return not is_hidden and not is_in_limbo(state, health.doubt, newer_epoch)


def code_of_failure(error: StorageError) -> Code:
    """Return the answer to a request that ended with an error. It never means "no such entry"."""
    return Code.BUSY if isinstance(error, TooManyFilesError) else Code.IO_ERROR


def absent(state: HeldLedger | None, health: Health, newer_epoch: int = 0) -> Code:
    """Return the answer for an entry that was not found."""
    if not may_say_absent(state, health, newer_epoch):
        return Code.IO_ERROR
    return Code.NO_LEDGER if state is None else Code.NO_ENTRY
