"""What random runs expect of a bookie that may have lost records, and a repair of its ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.model import NO_ENTRY, Code
from tests.crash.model import ViolationError

if TYPE_CHECKING:
    from tests.crash.run import Run


class Losses:
    """The possible losses of a run's bookie.

    Attributes:
        epoch: The newest epoch of doubt that the run has seen.
        is_possible: Records may be lost since the last start, so the next start may begin in doubt.
        is_certain: The next start must begin in doubt.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.epoch = 0
        self.is_possible = self.is_certain = False

    def expect(self) -> None:
        """Expect a doubt if a run without syncs owed a sync, and its proof is gone."""
        machine = self._run.machine
        run = None if machine.is_new else machine.manifest().run
        self.is_certain |= run is not None and not run.is_synced and not machine.disk.numbers

    def started(self) -> bool:
        """Compare the doubt after a start. Return whether it was raised."""
        run = self._run
        epoch = run.machine.serving.doubt.epoch
        was_raised = epoch > self.epoch
        if self.is_certain and not was_raised:
            raise ViolationError("entries may be lost, and the start raises no doubt")
        if was_raised and not (self.is_certain or self.is_possible):
            raise ViolationError("nothing is lost, and the start is in doubt")
        self.epoch, self.is_certain, self.is_possible = epoch, False, False
        if was_raised:
            run.seen["doubts"] += 1
            run.model.in_doubt = True
        return was_raised

    def repair(self) -> None:
        """Store all lost entries again, clear all ledgers, and end the doubt."""
        run = self._run
        machine, model, storage = run.machine, run.model, run.machine.serving
        epoch = storage.doubt.epoch

        async def repair() -> None:
            for ledger_id, entry_id in sorted(model.lost):
                stored = next(iter(model.acked[ledger_id, entry_id]))
                code = await storage.store_repaired(ledger_id, entry_id, stored)
                if code is not Code.OK:
                    raise ViolationError(f"a repaired entry was answered {code}")
            for ledger_id in range(run.ledgers_made):
                if storage.is_known(ledger_id) or run.random.random() < 0.5:
                    lac = model.lac.get(ledger_id, NO_ENTRY)
                    code = await storage.clear_ledger(ledger_id, epoch, lac)
                    if code is not Code.OK:
                        raise ViolationError(f"the repair of a ledger was answered {code}")
            if storage.limbo_ledgers():
                raise ViolationError(f"cleared, and in limbo: {storage.limbo_ledgers()}")
            await storage.end_doubt(epoch)

        machine.scheduler.run(repair(), machine.host)
        run.seen["repairs"] += 1
        run.seen["repaired"] += len(model.lost)
        model.in_doubt = False
        model.lost.clear()
