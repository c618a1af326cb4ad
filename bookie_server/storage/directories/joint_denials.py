"""Sends a request to each directory if no directory has a state of the ledger.

A directory that has failed, or that may have lost records, does not deny that the ledger exists.
So the bookie denies that the ledger exists only if every directory denies this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ledgerlog_spark.model import Code

T = TypeVar("T")
OnAnswer = Callable[[Code, T], None]
Request = Callable[[OnAnswer[T]], None]

DENIALS: Final = (Code.NO_LEDGER, Code.NO_ENTRY)
"""The answers that deny that an entry or a ledger exists."""


def request_all(requests: Sequence[Request[T]], on_answer: OnAnswer[T]) -> None:
    """Send the requests one after the other until an answer is not a denial. Pass on this answer.

    If all answers are denials, pass on the first answer.
    """

    def send(number: int, denial: tuple[Code, T] | None) -> None:
        def answered(code: Code, value: T) -> None:
            first = denial or (code, value)
            if code not in DENIALS:
                on_answer(code, value)
            elif number + 1 < len(requests):
                send(number + 1, first)
            else:
                on_answer(*first)

        requests[number](answered)

    send(0, None)
