"""A dictionary with the answers that a bookie may give after a power loss."""

from __future__ import annotations

from collections import Counter

from ledgerlog_spark.model import Code

ANY_AGE = 1 << 30
"""The age of an add that was not answered when its ledger was dropped: it may come after the
drop."""


class ViolationError(AssertionError):
    """The storage gave an answer that is not allowed."""


class Model:
    """The acknowledged state of each entry and of each ledger.

    Attributes:
        acked: Bytes that acknowledged adds stored or that a read returned, with the time of the
            answer. If several adds were pending together, any of these adds may be the newest.
        possible: Bytes of adds with an unknown outcome, and the number of these adds. Also bytes
            that were acknowledged before a drop, with the age of the ledger at that time.
        age: For each ledger, the number of drops that were sent.
        dropped: For each ledger, the age below which no entry may be returned any more.
        dropping: For each unanswered drop, the entries that were acknowledged when it was sent.
        fenced: Ledgers with an answered fence.
        fence_answers: The last entry in the first answer to a fence, or -1.
        being_dropped: Ledgers for which this process got a drop.
        hidden: Ledgers whose release by this process has not ended. Their entries may be unknown.
        lac: Largest explicit LAC that was acknowledged.
        in_doubt: The bookie may have lost records, and they are not repaired. It may answer
            "unknown" for everything that it does not have, but it may not deny anything.
        older: All acknowledged bytes, with the age of the ledger at that time. If the newest bytes
            are lost, the bookie may have older ones.
        lost: Acknowledged entries that the bookie did not have when everything was read.
    """

    def __init__(self) -> None:
        self.acked: dict[tuple[int, int], dict[bytes, int]] = {}
        self.time = 0
        self.possible: dict[tuple[int, int], Counter[tuple[int, bytes]]] = {}
        self.age: Counter[int] = Counter()
        self.dropped: Counter[int] = Counter()
        self.dropping: dict[int, dict[tuple[int, int], dict[bytes, int]]] = {}
        self.fenced: set[int] = set()
        self.fence_sent: set[int] = set()
        self.fence_answers: dict[int, int] = {}
        self.being_dropped: set[int] = set()
        self.hidden: set[int] = set()
        self.lac: dict[int, int] = {}
        self.in_doubt = False
        self.lost: set[tuple[int, int]] = set()
        self.older: dict[tuple[int, int], set[tuple[int, bytes]]] = {}

    def settle(self, key: tuple[int, int], data: bytes, sent_at: int) -> None:
        """An add that was sent at `sent_at` was acknowledged. It overwrites earlier answers."""
        self.time += 1
        self.older.setdefault(key, set()).add((self.age[key[0]], data))
        kept = {d: at for d, at in self.acked.get(key, {}).items() if at > sent_at}
        self.acked[key] = {**kept, data: self.time}

    def show(self, key: tuple[int, int], data: bytes, age: int) -> None:
        """A read returned an entry. From now on, the entry must stay, unless the ledger is dropped.

        The ledger had this age when the read was sent, and no drop of it was open.
        """
        if age == self.age[key[0]] and key not in self.acked:
            self.acked[key] = {data: self.time}

    def drop_sent(self, ledger_id: int) -> int:
        """From now on, acknowledged entries may be gone, and the ledger may be fenced.

        Return the age of later entries.
        """
        self.fence_sent.add(ledger_id)
        self.being_dropped.add(ledger_id)
        return self.release_sent(ledger_id)

    def process_ended(self) -> None:
        """Forget what only the process had."""
        self.being_dropped.clear()
        self.hidden.clear()

    def may_be_unknown(self, ledger_id: int) -> bool:
        """Whether the bookie may answer "unknown" for an entry of a ledger."""
        return self.in_doubt or ledger_id in self.hidden

    def release_sent(self, ledger_id: int) -> int:
        """From now on, acknowledged entries may be gone. Return the age of later entries."""
        going = {key: self.acked.pop(key) for key in list(self.acked) if key[0] == ledger_id}
        self.lost.difference_update(going)
        self.dropping[ledger_id] = going
        for key, stored in going.items():
            possible = self.possible.setdefault(key, Counter())
            possible.update((self.age[ledger_id], data) for data in stored)
        self.lost = {key for key in self.lost if key[0] != ledger_id}
        self.age[ledger_id] += 1
        self.lac.pop(ledger_id, None)
        return self.age[ledger_id]

    def is_undropped(self, ledger_id: int, age: int) -> bool:
        """Whether an add that was sent at an age and is answered now must stay from now on.

        The add may be lost only while a drop that was sent later is not answered.
        """
        dropped = self.dropped[ledger_id]
        return self.age[ledger_id] in (age, dropped)

    def largest(self, ledger_id: int) -> int:
        """The largest entry id that was acknowledged and not dropped, or -1."""
        return max((e for ledger, e in self.acked if ledger == ledger_id), default=-1)

    def check_whole(
        self,
        ledger_id: int,
        read: dict[tuple[int, int], bytes | None],
        sent_again: set[tuple[int, int]],
    ) -> None:
        """Check that an interrupted drop has deleted all entries or none.

        An entry of an unanswered add may have been stored again after the drop.
        """
        going = self.dropping.pop(ledger_id, {})
        kept = [
            key for key, stored in going.items() if read[key] in stored and key not in sent_again
        ]
        gone = [key for key in going if read[key] is None]
        if kept and gone and not self.in_doubt:
            raise ViolationError(f"a drop left {kept} and took {gone}")

    def check_read(
        self,
        ledger_id: int,
        entry_id: int,
        code: Code,
        data: bytes | None,
        dropped: int | None = None,
    ) -> None:
        """Compare an answer with the model.

        `dropped` is the value at the time of the read request.
        """
        key = (ledger_id, entry_id)
        if code is Code.OK:
            possible = self.possible.get(key, {}).items()
            dropped = self.dropped[ledger_id] if dropped is None else dropped
            allowed = {data for (age, data), count in possible if count > 0 and age >= dropped}
            allowed |= self.acked.get(key, {}).keys()
            if self.in_doubt:
                allowed |= {data for age, data in self.older.get(key, ()) if age >= dropped}
            if data not in allowed:
                raise ViolationError(f"{key}: bytes that nobody wrote")
        elif code is Code.IO_ERROR and self.in_doubt:
            return
        elif key in self.acked:
            raise ViolationError(f"{key}: acknowledged, and answered {code}")
        elif not code.is_absent:
            raise ViolationError(f"{key}: {code} without any damage")
