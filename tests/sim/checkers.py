"""One checker for each ledger of a world; reports go to the checker of their ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.checker import Checker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.protocol.ledger import messages as m
    from tests.sim.client import SimClient
    from tests.sim.copies import Copy, Promise


class Checkers:
    """All checkers of one world.

    Attributes:
        marks: Situations that occurred in any ledger, and how often.
    """

    def __init__(self) -> None:
        self.by_ledger: dict[int, Checker] = {}
        self.marks: dict[str, int] = {}

    def of(self, ledger_id: int) -> Checker:
        checker = self.by_ledger.get(ledger_id)
        if checker is None:
            checker = self.by_ledger[ledger_id] = Checker(self.marks)
        return checker

    def mark(self, name: str) -> None:
        self.marks[name] = self.marks.get(name, 0) + 1

    def around_handle(self, client: SimClient, event: Any) -> list[Any]:
        return self.of(client.ledger_id).around_handle(client, event)

    def indicated(self, client: SimClient, effect: Any) -> None:
        self.of(client.ledger_id).indicated(client, effect)

    def add_sent(self, client: SimClient, effect: m.SendAdd) -> None:
        self.of(client.ledger_id).add_sent(client, effect)

    def add_begun(self, bookie: str, request: Any) -> Sequence[Copy]:
        return self.of(request.ledger_id).copies.begin(bookie, request)

    def add_answered(self, bookie: str, request: Any, code: Any, sent: Sequence[Copy]) -> None:
        self.of(request.ledger_id).add_answered(bookie, request, code, sent)

    def promise(self, bookie: str, ledger_id: int, entry_id: int) -> Promise:
        return self.of(ledger_id).copies.promise(bookie, entry_id)

    def read_answered(
        self, bookie: str, request: Any, code: Any, stored: bytes | None, promise: Promise
    ) -> None:
        self.of(request.ledger_id).read_answered(bookie, request, code, stored, promise)

    def batch_answered(
        self, bookie: str, request: Any, code: Any, stored: Sequence[bytes], promise: Promise
    ) -> None:
        self.of(request.ledger_id).batch_answered(bookie, code, stored, promise)

    def lac_answered(
        self, bookie: str, ledger_id: int, code: Any, lac: int, promise: Promise
    ) -> None:
        self.of(ledger_id).lac_answered(bookie, code, lac, promise)

    def lac_acknowledged(self, bookie: str, ledger_id: int, lac: int) -> None:
        self.of(ledger_id).copies.lac_acknowledged(bookie, lac)
