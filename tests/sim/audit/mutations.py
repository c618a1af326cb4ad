"""Named mistakes about the audit. Each replaces a part of the shipped code, or of the model.

See `tests.sim.mutations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ledgerlog_spark.protocol.autorecovery.audit.auditor import Auditor
from ledgerlog_spark.protocol.autorecovery.audit.losses import Losses, LossStage
from ledgerlog_spark.protocol.autorecovery.audit.marking import MarkingWalk
from ledgerlog_spark.protocol.autorecovery.audit.messages import SessionEnded
from tests.sim.audit.store import Note, Queue
from tests.sim.handlers import replace
from tests.sim.mutations import Mutation


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply one mutation inside the `with` block."""
    with ExitStack() as undo:
        for owner, attribute, replacement in MUTATIONS[name].patches:
            assert attribute in vars(owner), (owner, attribute)
            replace(undo, owner, attribute, replacement)
        yield


def _never_hold(_self: Losses, _new: list[str], *, is_storm: bool) -> bool:  # noqa: ARG001
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
_handle = Auditor.handle
_suspend = Auditor._suspend
_decide = Losses._decide


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


def _ripe_when_disabled(self: Losses) -> frozenset[str]:
    marked = (LossStage.RIPE, LossStage.AGAIN)
    return frozenset(one for one, stage in self._stages.items() if stage in marked)


def _keep_the_wait(self: Losses, *, is_storm: bool, delay_ms: int) -> None:
    """Let the delay run on after the bookie has returned."""
    if self._new():
        _decide(self, is_storm=is_storm, delay_ms=delay_ms)


MUTATIONS: dict[str, Mutation] = {
    "believes_empty_registration": Mutation("N3", ((Losses, "_must_hold", _never_hold),)),
    "re_mark_is_silent": Mutation("N7", ((Queue, "add", _add_once),)),
    "index_is_truth": Mutation("N6", ((MarkingWalk, "_next_page", _end_after_proposals),)),
    "stale_auditor_publishes": Mutation(
        "N8",
        (
            (Auditor, "handle", _go_on_without_session),
            (Auditor, "_suspend", _go_on_without_store),
        ),
    ),
    "disable_ignored": Mutation("N4", ((Losses, "ripe", property(_ripe_when_disabled)),)),
    "delay_not_cancelled": Mutation("N2", ((Losses, "_decide", _keep_the_wait),)),
}
