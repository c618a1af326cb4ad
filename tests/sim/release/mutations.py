"""Named mistakes about releases. Each replaces a function of the shipped code, or of a worker.

See `tests.sim.mutations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bookie_server.core.record import JournalRecord
from bookie_server.core.release import is_released_by
from bookie_server.service import releaser
from bookie_server.service.releaser import Releaser
from bookie_server.storage.adds import AddPath
from bookie_server.storage.releases import Releases
from ledgerlog_spark.model import Code, LedgerMetadata, LedgerState
from tests.sim.handlers import replace
from tests.sim.mutations import Mutation
from tests.sim.release.worker import Worker


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Apply one mutation inside the `with` block."""
    with ExitStack() as undo:
        for owner, attribute, replacement in MUTATIONS[name].patches:
            assert attribute in vars(owner), (owner, attribute)
            replace(undo, owner, attribute, replacement)
        yield


def _closed_or_in_recovery(metadata: LedgerMetadata, bookie_id: str) -> bool:
    is_named = any(bookie_id in fragment.ensemble for fragment in metadata.fragments)
    return metadata.state is not LedgerState.OPEN and not is_named


async def _only_read(self: Releaser, ledger_id: int) -> bool:
    """Read the record, and do not touch it."""
    record = await self._records.load(ledger_id)
    return record is not None and is_released_by(record.value, self._bookie_id)


async def _touch_with_any_outcome(self: Releaser, ledger_id: int) -> bool:
    """Drop the ledger even if another client has written the record first."""
    record = await self._records.load(ledger_id)
    if record is None or not is_released_by(record.value, self._bookie_id):
        return False
    await self._records.touch(ledger_id, record.version)
    return True


def _hide_nothing(self: Releases, ledger_id: int) -> bool:
    state = self._shared.states.get(ledger_id)
    return state is not None and self._may_begin(state, self._quiet_before())


_release = Releases.release


def _release_what_is_not_hidden(self: Releases, ledger_id: int, on_done: Any) -> None:
    self._shared.states[ledger_id].is_releasing = True
    _release(self, ledger_id, on_done)


def _show_before_it_is_durable(self: Releases, ledger_id: int, on_done: Any) -> None:
    _release(self, ledger_id, on_done)
    self._shared.states[ledger_id].is_hidden = False


_admit = AddPath._admit


def _answer_from_the_held_copy(
    self: AddPath, request: Any, lac: int, on_done: Any, **rest: bool
) -> None:
    """Answer OK to a repeated add of a ledger that is being released."""
    state = self._states.get(request.ledger_id)
    is_repeat = state is not None and request.entry_ids[0] <= state.last_accepted_id
    if state is not None and state.is_releasing and is_repeat:
        on_done(Code.OK)
    else:
        _admit(self, request, lac, on_done, **rest)


def _write_again(self: Worker) -> None:
    """After a conflict, write the newest record without another list."""
    self._load(self._write)


MUTATIONS: dict[str, Mutation] = {
    "release_fences": Mutation(
        "ADR 43", ((JournalRecord, "is_release", property(lambda _self: False)),)
    ),
    "release_in_recovery": Mutation(
        "ADR 43", ((releaser, "is_released_by", _closed_or_in_recovery),)
    ),
    "release_beats_cas": Mutation("ADR 43", ((Releaser, "_touch", _touch_with_any_outcome),)),
    "drop_without_touch": Mutation("ADR 43", ((Releaser, "_touch", _only_read),)),
    "drop_without_hide": Mutation(
        "ADR 43",
        (
            (Releases, "hide", _hide_nothing),
            (Releases, "release", _release_what_is_not_hidden),
        ),
    ),
    "release_is_shown_before_it_is_durable": Mutation(
        "ADR 43", ((Releases, "release", _show_before_it_is_durable),)
    ),
    "repeat_answers_from_released": Mutation(
        "ADR 43", ((AddPath, "_admit", _answer_from_the_held_copy),)
    ),
    "conflict_keeps_copies": Mutation("ADR 43", ((Worker, "_on_conflict", _write_again),)),
}
