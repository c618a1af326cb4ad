"""Finds the directory of each ledger, and chooses the directory of a new ledger.

A ledger stays for ever in the directory that has its state. Before the directory makes the state,
the first record may have to wait, for example for the metadata check. Meanwhile, this module
remembers the directory, so that no later record of the ledger goes to another directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bookie_server.storage.directories.choice import chosen_home
from bookie_server.storage.ledger_storage import LedgerStorage


@dataclass(slots=True)
class _Expected:
    home: LedgerStorage
    requests: int = 0  # number of unanswered requests that may make the state


class Homes:
    """The directories of all ledgers of a bookie."""

    def __init__(self, storages: Sequence[LedgerStorage]) -> None:
        self._storages = tuple(storages)
        self._expected: dict[int, _Expected] = {}

    def of(self, ledger_id: int) -> LedgerStorage | None:
        """Return the directory that has the state of a ledger, or None.

        A directory that has forgotten the ledger stays its home until the change is durable.
        Otherwise, two directories could have a state of the ledger after a crash.
        """
        for storage in self._storages:
            if storage.is_home(ledger_id):
                return storage
        return None

    def begin(self, ledger_id: int, *, is_regular: bool) -> LedgerStorage:
        """Return the directory for a request that may make the state of a ledger.

        After the answer, the caller calls `end`. `is_regular` is true for a regular add, which
        needs more room than other records. If no directory accepts the record, the result is a
        directory that refuses it.
        """
        expected = self._expected.get(ledger_id)
        if expected is None:
            home = self.of(ledger_id) or self._choose(ledger_id, is_regular=is_regular)
            expected = self._expected[ledger_id] = _Expected(home)
        expected.requests += 1
        return expected.home

    def end(self, ledger_id: int) -> None:
        """Note that a request for which `begin` was called has been answered."""
        expected = self._expected[ledger_id]
        expected.requests -= 1
        if not expected.requests:
            del self._expected[ledger_id]

    @contextmanager
    def expecting(self, ledger_id: int) -> Iterator[LedgerStorage]:
        """Return the directory for a record of a repair.

        The directory is remembered until the record is stored or refused.
        """
        home = self.begin(ledger_id, is_regular=False)
        try:
            yield home
        finally:
            self.end(ledger_id)

    def _choose(self, ledger_id: int, *, is_regular: bool) -> LedgerStorage:
        number = chosen_home(
            ledger_id,
            [
                storage.disk.space.free
                if (storage.is_writable if is_regular else storage.has_room)
                else None
                for storage in self._storages
            ],
        )
        serving = [storage for storage in self._storages if storage.failure is None]
        home = (serving or self._storages)[0] if number is None else self._storages[number]
        # Another directory may have had the ledger earlier, and may have forgotten its fence.
        home.check_adds_like(self._storages)
        return home
