"""Lists which faults explain a failure that a client reports: one fault must have happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import LedgerState
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.messages import Failure
from tests.sim.checker import Checker, require

if TYPE_CHECKING:
    from tests.sim.client import SimClient
    from tests.sim.faults import Faults

NETWORK = frozenset({"drop", "tail", "partition", "freeze", "reset"})
CRASHES = frozenset({"absent", "answer", "boot", "kill", "power", "restart", "torn"})
BOOKIE = (
    NETWORK | CRASHES | {"busy", "disk", "full", "garble", "impatient", "refused", "rot", "slow"}
)
STORE = NETWORK | {"away", "cas", "impatient"}

EXPLAINED_BY = {
    Failure.NOT_ENOUGH_BOOKIES: BOOKIE,
    Failure.TOO_MANY_CHANGES: BOOKIE,
    Failure.BOOKIE_FAILED: BOOKIE,
    Failure.OVERLOADED: frozenset({"busy"}),
    Failure.ADD_TIMEOUT: BOOKIE | STORE,
    Failure.RECOVERY: BOOKIE,
    Failure.BOOKIE_CHANGED: frozenset({"wipe"}),
    Failure.ENTRY_UNKNOWN: BOOKIE | STORE | {"unreadable"},
    Failure.LAC_UNKNOWN: BOOKIE,
    Failure.METADATA_UNAVAILABLE: STORE,
    Failure.DIGEST_MISMATCH: frozenset({"garble", "rot"}),
    Failure.METADATA_UNREADABLE: frozenset({"unreadable"}),
    Failure.UNAUTHORIZED: frozenset({"password"}),
}
"""Failures that a client does not cause itself. For each, one of these faults must have happened
while the client was running."""


def judge(client: SimClient, event: Any, indication: Any, checker: Checker, faults: Faults) -> None:
    """Require that what a client reports is true, or explained by a fault in its lifetime.

    Args:
        event: What the client handled when it reported the failure.
    """
    if not isinstance(indication, m.LedgerFailed | m.ReadFailed):
        return
    failure = indication.failure
    about = f"{client.name} reports {failure.name}"
    state = checker.record.state
    if failure is Failure.ADD_TIMEOUT:
        entry_id: Any = indication.entry_id
        waited_ms = (faults.now_us() - checker.added_us[entry_id]) // 1_000
        allowed_ms: Any = client.machine._settings.add_quorum_timeout_ms
        waits = waited_ms >= allowed_ms
        require(waits, "L35", f"{about} of entry {entry_id}, which waited {waited_ms} ms")
    if failure is Failure.FENCED:
        recovered = state is not LedgerState.OPEN or checker.is_deleted
        require(recovered, "L31", f"{about}, the ledger is OPEN")
    elif failure is Failure.CLOSED:
        closed = checker.was_closed or checker.is_deleted
        require(closed, "L35", f"{about}, the ledger is {state.name}")
    elif failure is Failure.NOT_FOUND:
        require(checker.is_deleted, "L35", f"{about}, nobody deleted the ledger")
    elif failure is Failure.NEEDS_OPERATOR:
        floor: Any = client.machine._floor_entry_id
        is_loaded = isinstance(event, m.MetadataLoaded) and event.versioned is not None
        require(is_loaded, "L35", f"{about} after {type(event).__name__}, not after a load")
        record = event.versioned.value
        end = record.last_entry_id if record.is_closed else checker.last_confirmed
        is_floor = floor > end or faults.happened_between("rot", 0)
        require(is_floor, "L35", f"{about} with the floor {floor}, the end is {end}")
    elif failure is Failure.ENTRY_ABSENT:
        require(checker.is_deleted, "L3", f"{about}, although the entry was confirmed")
    elif failure is Failure.METADATA_CHANGED:
        versions = [one.version for _, one in checker.records]
        base: Any = client.machine._base.version  # that its last attempt read
        later = checker.records[versions.index(base) + 1 :]
        by_others = [name for name, _ in later if name != client.name]
        require(bool(by_others), "L35", f"{about}, and only it wrote after {base}")
    else:
        kinds = EXPLAINED_BY.get(failure, frozenset())
        explained = checker.is_deleted or any(
            faults.happened_between(kind, client.began_us) for kind in sorted(kinds)
        )
        require(explained, "L35", f"{about}, and no fault in its time explains it")
