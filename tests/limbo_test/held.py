"""What a bookie held before a loss, and what it answers for these entries afterwards."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.entry import EntryCodec
from tests.abuse.loop_lags import samples_of
from tests.fixtures.replicas import answers, stored_on
from tests.kill_test.payload import payload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.model import LedgerMetadata
    from tests.fixtures.bookie_process import BookieProcess

WHOLE_SECONDS_MAX = 300.0
PAUSE_SECONDS = 0.5
FETCHED = "ledgerlog_bookie_repair_entries_fetched"


@dataclass(slots=True)
class Seen:
    """The answers of one look at all entries that a bookie held."""

    intact: int = 0
    unknown: int = 0
    absent: int = 0
    wrong: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether each copy is there with its bytes."""
        return not (self.unknown or self.absent or self.wrong)


class Held:
    """The entries of closed ledgers that a bookie held before a loss.

    A bookie of a write set need not have each entry, because an ack quorum is enough. So only the
    copies count that the bookie has given before.
    """

    def __init__(self, name: str, bookie: BookieProcess) -> None:
        self.name = name
        self.bookie = bookie
        self.entries: dict[int, list[int]] = {}
        self._codecs: dict[int, EntryCodec] = {}

    def take(self, client: BlockingClient, ledger_ids: Iterable[int]) -> None:
        """Ask the bookie for its entries of these closed ledgers."""
        for ledger_id in ledger_ids:
            metadata = client.ledger_metadata(ledger_id)
            self._codecs[ledger_id] = EntryCodec(metadata.digest_type)
            expected = self._expected(metadata)
            found = [a.entry_id for a in answers(self.bookie, ledger_id, expected) if a.entry]
            if found:
                self.entries[ledger_id] = found

    def _expected(self, metadata: LedgerMetadata) -> list[int]:
        return [e for name, ids in stored_on(metadata) for e in ids if name == self.name]

    @property
    def count(self) -> int:
        """Number of entries that the bookie held."""
        return sum(map(len, self.entries.values()))

    def look(self) -> Seen:
        """Ask the bookie for each entry once."""
        seen = Seen()
        for ledger_id, entry_ids in self.entries.items():
            for answer in answers(self.bookie, ledger_id, entry_ids):
                about = f"{self.name}, ledger {ledger_id}, entry {answer.entry_id}"
                if answer.code.is_absent:
                    seen.absent += 1
                    seen.broken.append(f"{about}: {answer.code.name}")
                elif answer.entry is None:
                    seen.unknown += 1
                elif self._is_right(ledger_id, answer.entry_id, answer.entry):
                    seen.intact += 1
                else:
                    seen.wrong += 1
                    seen.broken.append(f"{about}: other bytes")
        return seen

    def _is_right(self, ledger_id: int, entry_id: int, entry: bytes) -> bool:
        try:
            found = self._codecs[ledger_id].decode(entry, ledger_id, entry_id).payload
        except WireFormatError:
            return False
        return found == payload(ledger_id, entry_id)


@dataclass(slots=True)
class Recovered:
    """How a bookie became whole again.

    Attributes:
        entries: Number of entries that the bookie held.
        fetched: Number of entries that it fetched from other bookies.
        absent: Number of answers that denied one of these entries, in all looks.
        seconds: Time until each copy was there again; infinite if that did not happen.
        broken: Sentences about answers that must not occur.
    """

    entries: int
    fetched: int = 0
    absent: int = 0
    seconds: float = float("inf")
    broken: list[str] = field(default_factory=list)


def wait_until_whole(held: Held) -> Recovered:
    """Ask for all entries again and again until each copy is there."""
    began = time.monotonic()
    recovered = Recovered(held.count)
    while time.monotonic() - began < WHOLE_SECONDS_MAX:
        seen = held.look()
        recovered.absent += seen.absent
        recovered.broken += seen.broken[: max(0, 20 - len(recovered.broken))]
        if seen.is_whole:
            recovered.seconds = time.monotonic() - began
            break
        time.sleep(PAUSE_SECONDS)
    samples = samples_of(int(str(held.bookie.settings["metrics_port"])))
    recovered.fetched = int(samples[FETCHED])
    return recovered
