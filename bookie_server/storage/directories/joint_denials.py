"""Sends a request to each directory if no directory has a state of the ledger.

A directory that has failed, or that may have lost records, does not deny that the ledger exists.
So the bookie denies it only if every directory does.
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
    """Send one request after the other, until an answer is no denial, and answer with it.

    If all answers are denials, answer with the first one.
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
