"""The requests to a storage. Each is answered once, and the callback of a peer may fail."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.crash.model import ViolationError
from tests.sim.runtime import Host


class CarelessError(Exception):
    """Raised by a callback after it has done its work.

    It is a mistake of the peer, not of the bookie.
    """


class Requests:
    """The requests of one run.

    Args:
        random: Decides which callbacks fail.
        careless_part: The part of the later callbacks that fail.

    Attributes:
        open: The requests without an answer, by number.
        is_sending: Whether a peer is making a call.
        raised: The errors of callbacks.
        reported: Those of these errors that the storage raised in a separate turn.
    """

    def __init__(self, random: Random, careless_part: float = 0.0) -> None:
        self._random = random
        self._careless_part = careless_part
        self._numbered = 0
        self.is_sending = False
        self.open: dict[int, str] = {}
        self.raised = 0
        self.reported = 0

    def send(
        self,
        what: str,
        call: Callable[[Callable[..., None]], None],
        done: Callable[..., None],
    ) -> None:
        """Make a call that is answered through a callback."""
        self._numbered += 1
        number = self._numbered
        self.open[number] = what

        def answered(*answer: object) -> None:
            if self.open.pop(number, None) is None:
                raise ViolationError(f"{what} is answered twice: {answer}")
            done(*answer)
            self.fail_at_random()

        self.is_sending = True
        try:
            call(answered)
        finally:
            self.is_sending = False

    def fail_at_random(self) -> None:
        """Sometimes raise a callback's error, but never within the peer's own call."""
        if self.is_sending or self._random.random() >= self._careless_part:
            return
        self.raised += 1
        raise CarelessError

    def watch(self, host: Host) -> None:
        """Check the errors of callbacks and tasks of a process."""
        host.on_callback_error = self._on_callback_error
        host.on_failure = self._on_task_error

    def _on_callback_error(self, error: Exception) -> None:
        if not isinstance(error, CarelessError):
            raise error
        self.reported += 1

    def _on_task_error(self, error: BaseException) -> None:
        raise ViolationError(f"a task of the bookie ended with {error!r}") from error

    def forget(self) -> None:
        """Forget all requests, because the process was killed and will not answer them."""
        self.open.clear()
        self.reported = self.raised

    @property
    def is_settled(self) -> bool:
        """True if no request waits for an answer, and all failures were reported."""
        return not self.open and self.raised <= self.reported

    def require_all_answered(self) -> None:
        """Raise an error if a request still waits for an answer."""
        if self.open:
            raise ViolationError(f"nobody answers {sorted(self.open.values())}")
        if self.raised > self.reported:
            missing = self.raised - self.reported
            raise ViolationError(f"{missing} failures of callbacks were kept from their owner")
