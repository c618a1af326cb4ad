"""A driver that is paused in the middle of a batch, while another one takes its queries over."""

from __future__ import annotations

import re
import shutil
import signal
from dataclasses import dataclass

from tests.exactly_once.driver import Driver, SilentDriverError, signal_all
from tests.exactly_once.kills import Scenario

BATCHES_BEFORE = 6
BATCHES_AFTER = 8
ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the two.

    Attributes:
        reasons: The errors that ended the zombie's queries after it was resumed.
        is_fenced: Whether each of them ended because it was replaced.
        survivor_endings: Why queries of the other one ended; has to be empty.
    """

    reasons: tuple[str, ...]
    is_fenced: bool
    survivor_endings: tuple[str, ...]


def haunt(scenario: Scenario) -> Verdict:
    """Pause one driver, run the same queries elsewhere, resume the first."""
    log = scenario.directory / "zombies.log"
    zombie = Driver({**scenario.settings(), "restart": False}, log)
    survivor: Driver | None = None
    try:
        zombie.wait_for("running")
        scenario.chunks = zombie.chunks
        zombie.wait_for_batches(BATCHES_BEFORE)
        paused = zombie.tree()
        signal_all(paused, signal.SIGSTOP)
        elsewhere = scenario.directory / ELSEWHERE
        shutil.copytree(scenario.directory, elsewhere, ignore=shutil.ignore_patterns("*.log"))
        scenario.directory = elsewhere
        survivor = Driver(scenario.settings(), log)
        survivor.wait_for("running")
        survivor.wait_for_batches(BATCHES_AFTER)
        signal_all(paused, signal.SIGCONT)
        reasons = tuple(zombie.wait_for("ended")["why"] for _ in range(2))
        survivor.wait_for_batches(BATCHES_AFTER)
        scenario.chunks = survivor.chunks
    except SilentDriverError as silence:
        raise SilentDriverError(f"zombie: {silence}; see {log}") from None
    finally:
        signal_all(zombie.tree(), signal.SIGCONT)
        zombie.end()
        if survivor is not None:
            survivor.end()
    is_fenced = all("ProducerFencedError" in why for why in reasons)
    named = tuple(", ".join(sorted(set(re.findall(r"\w+Error", why)))) for why in reasons)
    return Verdict(named, is_fenced, tuple(survivor.endings))
