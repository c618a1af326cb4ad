"""Named mistakes about the audit. Each replaces a part of the shipped code, or of the model.

See `tests.sim.mutations`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.autorecovery.audit import replicas
from ledgerlog_spark.protocol.autorecovery.audit.auditor import Auditor
from ledgerlog_spark.protocol.autorecovery.audit.check_machine import CheckMachine, Steps
from ledgerlog_spark.protocol.autorecovery.audit.digests import DigestCheck
from ledgerlog_spark.protocol.autorecovery.audit.losses import BookieLosses, LossStage
from ledgerlog_spark.protocol.autorecovery.audit.marking import MarkingWalk
from ledgerlog_spark.protocol.autorecovery.audit.messages import (
    FoundHole,
    SessionEnded,
    WriteMark,
)
from ledgerlog_spark.protocol.autorecovery.audit.unknown import UnknownCopies, UnknownCopy
from ledgerlog_spark.protocol.ledger.quorum import owns
from tests.sim.auditor.copies import WEEK_MS, CheckProcess
from tests.sim.auditor.store import US, Note, Queue
from tests.sim.handlers import replace
from tests.sim.mutations import Mutation


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply one mutation inside the `with` block."""
    with ExitStack() as undo:
        for owner, attribute, replacement in (MUTATIONS | COPY_MUTATIONS)[name].patches:
            assert attribute in vars(owner), (owner, attribute)
            replace(undo, owner, attribute, replacement)
        yield


def _never_hold(_self: BookieLosses, _new: list[str], *, is_storm: bool) -> bool:
    return False


def _add_once(self: Queue, ledger_id: int, bookie_ids: frozenset[str]) -> None:
    """Write nothing if the note has these bookies already."""
    found = self.notes.get(ledger_id)
    if found is None or not bookie_ids <= found.bookie_ids:
        _add(self, ledger_id, bookie_ids)
    else:
        self.notes[ledger_id] = Note(found.bookie_ids, found.number, found.written_us)


_add = Queue.add
_next_page = MarkingWalk._next_page
_write_marks = MarkingWalk._write_marks
_handle = Auditor.handle
_suspend = Auditor._suspend
_decide = BookieLosses._decide


def _end_after_proposals(self: MarkingWalk, ripe: frozenset[str]) -> list[Any]:
    """Walk only to fill the index. After that, the index decides."""
    if ripe and self._index.is_whole and not self._proposals:
        self.is_running = False
        return []
    return _next_page(self, ripe)


def _go_on_without_session(self: Auditor, event: Any) -> list[Any]:
    return [] if isinstance(event, SessionEnded) else _handle(self, event)


def _go_on_without_store(_self: Auditor) -> None:
    """Publish while the connection is lost."""


def _mark_without_a_read(self: MarkingWalk, ripe: frozenset[str]) -> list[Any]:
    self._marks_since_read = 0
    return _write_marks(self, ripe)


def _ripe_when_disabled(self: BookieLosses) -> frozenset[str]:
    marked = (LossStage.RIPE, LossStage.AGAIN)
    return frozenset(one for one, stage in self._stages.items() if stage in marked)


def _keep_the_wait(self: BookieLosses, *, is_storm: bool, delay_ms: int) -> None:
    """Let the delay run on after the bookie has returned."""
    if self._new():
        _decide(self, is_storm=is_storm, delay_ms=delay_ms)


def _ends_only(
    quorum: Quorum, index: int, first: int, end: int, ranges: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Look only at the first and the last entry of a copy."""
    owned = [one for one in range(first, end) if owns(quorum, index, one)]
    probed = [owned[0], owned[-1]] if owned else []
    lacks = [one for one in probed if not any(low <= one <= high for low, high in ranges)]
    return (lacks[0], lacks[-1]) if lacks else None


def _into_the_queue_of_lost_bookies(
    self: CheckMachine, ledger_id: int, holes: list[FoundHole]
) -> Steps[bool]:
    names = tuple(dict.fromkeys(one.bookie_id for one in holes))
    return (yield from self._write(WriteMark(0, ledger_id, names)))  # type: ignore[arg-type]


def _free_of_charge(self: DigestCheck, size_bytes: int) -> Steps[None]:
    self._size_bytes += size_bytes
    yield from ()


def _still_at_once(self: UnknownCopies, copy: UnknownCopy) -> bool:
    self.forget(copy)
    return True


def _clock_of_a_host_that_is_behind(self: CheckProcess) -> int:
    return self.world.scheduler.now_us - 10 * WEEK_MS * US


MUTATIONS: dict[str, Mutation] = {
    "marks_without_a_read": Mutation("N1", ((MarkingWalk, "_write_marks", _mark_without_a_read),)),
    "believes_empty_registration": Mutation("N3", ((BookieLosses, "_must_hold", _never_hold),)),
    "re_mark_is_silent": Mutation("N7", ((Queue, "add", _add_once),)),
    "index_is_truth": Mutation("N6", ((MarkingWalk, "_next_page", _end_after_proposals),)),
    "stale_auditor_publishes": Mutation(
        "N8",
        (
            (Auditor, "handle", _go_on_without_session),
            (Auditor, "_suspend", _go_on_without_store),
        ),
    ),
    "disable_ignored": Mutation("N4", ((BookieLosses, "ripe", property(_ripe_when_disabled)),)),
    "delay_not_cancelled": Mutation("N2", ((BookieLosses, "_decide", _keep_the_wait),)),
}
"""Mistakes about lost bookies."""

COPY_MUTATIONS: dict[str, Mutation] = {
    "probe_first_and_last": Mutation("N10", ((replicas, "lacking", _ends_only),)),
    "hole_in_ur_queue": Mutation(
        "N11", ((CheckMachine, "_report_holes", _into_the_queue_of_lost_bookies),)
    ),
    "unknown_is_missing": Mutation("N12", ((UnknownCopies, "still", _still_at_once),)),
    "digests_without_limit": Mutation("N13", ((DigestCheck, "_pay", _free_of_charge),)),
    "host_clock_expires": Mutation(
        "N10", ((CheckProcess, "clock_us", _clock_of_a_host_that_is_behind),)
    ),
}
"""Mistakes about copies."""
