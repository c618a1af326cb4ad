"""Runs one machine inside another; the outer machine gives each request its number.

The inner machine has one pending request at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.machine import LogMachine
from ledgerlog_spark.protocol.log.messages import Failed, Finished, Written
from ledgerlog_spark.protocol.log.transaction import HeadTransaction
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

Ended = Finished[Any] | Failed

_MAY_HAVE_PASSED = {MetadataOutcome.OK, MetadataOutcome.UNKNOWN}


class InnerMachine:
    """Runs one machine after another."""

    __slots__ = ("_inner_request", "_numbers", "machine", "request")

    def __init__(self, numbers: RequestNumbers) -> None:
        self.machine: LogMachine[Any] | None = None
        self.request = 0
        self._numbers = numbers
        self._inner_request = -1

    def start(self, machine: LogMachine[Any]) -> tuple[list[Any], Ended | None]:
        """Start a machine; returns its requests to send, or its result if it has ended."""
        assert not self.request, "one at a time"
        self.machine = machine
        return self._pass_on(machine.start())

    def handle(self, reply: Any) -> tuple[list[Any], Ended | None]:
        """Pass the reply to `request` on to the machine; returns the same as `start`."""
        assert self.machine is not None
        assert reply.request == self.request, reply
        self.request = 0
        return self._pass_on(self.machine.handle(replace(reply, request=self._inner_request)))

    @property
    def may_write(self) -> bool:
        """Whether a write of the running machine may still change the head."""
        machine = self.machine
        return bool(self.request) and isinstance(machine, HeadTransaction) and machine.may_write

    def take_refusal(self, reply: Any) -> HeadTransaction[Any] | None:
        """Return the machine if this reply shows that its only write certainly failed, or None.

        After that, the machine can no longer change the head.
        """
        machine = self.machine
        if reply.request != self.request or not isinstance(machine, HeadTransaction):
            return None
        self.request = 0
        is_refusal = isinstance(reply, Written) and reply.outcome not in _MAY_HAVE_PASSED
        return machine if is_refusal and machine.leave() else None

    def _pass_on(self, effects: list[Any]) -> tuple[list[Any], Ended | None]:
        (effect,) = effects
        if isinstance(effect, Finished | Failed):
            return [], effect
        self._inner_request = effect.request
        self.request = self._numbers.next()
        return [replace(effect, request=self.request)], None
