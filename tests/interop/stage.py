"""What a scenario plays on: bookies, clients, and what is read against what was sent."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ledgerlog_spark.local.cluster import Cluster
from tests.interop.client_process import ClientProcess, Clients, Got
from tests.interop.payload import Source

JAVA, OURS = "java", "ours"
KINDS = (JAVA, OURS)
DIGESTS = ("CRC32C", "CRC32", "MAC", "DUMMY")
CUSTOM = {"application": b"interop", "bytes": bytes(range(256)), "empty": b""}
OUTSTANDING = 400


@dataclass(frozen=True, slots=True)
class Shape:
    """E, Qw and Qa of a ledger."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    @property
    def is_striped(self) -> bool:
        """Whether a bookie holds only some of the entries: then nobody reads batches."""
        return self.ensemble_size > self.write_quorum

    def __str__(self) -> str:
        return f"E{self.ensemble_size}/Qw{self.write_quorum}/Qa{self.ack_quorum}"


WHOLE = Shape(3, 3, 2)
STRIPED = Shape(4, 3, 2)
STRIPED_OVER_THREE = Shape(3, 2, 2)


class Bookies(Protocol):
    """Bookies of either kind that can be killed and started again."""

    def kill(self, bookie_id: str) -> None:
        """SIGKILL."""

    def start(self, *bookie_ids: str) -> None:
        """Returns when they serve."""


class OurBookies:
    """The bookies of a local cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def ids(self) -> tuple[str, ...]:
        """As they are registered."""
        return tuple(member.id for member in self._cluster.members.bookies)

    def kill(self, bookie_id: str) -> None:
        """SIGKILL."""
        self._cluster.kill(bookie_id)

    def stop(self, bookie_id: str) -> None:
        """SIGTERM: it takes its registration back before it ends."""
        self._cluster.kill(bookie_id, signal.SIGTERM)

    def start(self, *bookie_ids: str) -> None:
        """Returns when they serve."""
        for bookie_id in bookie_ids:
            self._cluster.start(bookie_id)


@dataclass(slots=True)
class Tally:
    """What the comparisons found.

    Attributes:
        entries: Entries that were read and compared, by all readers together.
        lost: Acknowledged entries that a reader did not get.
        changed: Entries with another payload than the one that was sent.
        invented: Entries that were never sent.
        in_doubt: Entries that a writer had sent and not yet reported when it was killed.
        overstated: Ledgers that Java's recovery closed with too large a length.
    """

    entries: int = 0
    lost: int = 0
    changed: int = 0
    invented: int = 0
    in_doubt: int = 0
    overstated: int = 0

    def add(self, other: Tally) -> None:
        """Sum up."""
        self.entries += other.entries
        self.lost += other.lost
        self.changed += other.changed
        self.invented += other.invented
        self.in_doubt += other.in_doubt
        self.overstated += other.overstated

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, changed or invented."""
        return not (self.lost or self.changed or self.invented)


@dataclass(slots=True)
class Written:
    """A ledger and what its writer sent to it."""

    id: int
    shape: Shape
    digest: str
    password: str
    source: Source
    writer: ClientProcess
    created: dict[str, Any]

    @property
    def credentials(self) -> tuple[int, str, str]:
        """What opening it takes."""
        return self.id, self.digest, self.password

    def kill_writer(self, tally: Tally) -> None:
        """SIGKILL, then counts what it leaves in doubt."""
        self.writer.kill()
        tally.in_doubt += self.writer.sent - self.writer.acknowledged - 1

    def append(self, count: int, *, outstanding: int = OUTSTANDING) -> None:
        """Begin to append; `writer.finish()` waits for the last acknowledgement."""
        seed, sizes = self.source.words
        self.writer.begin("append", self.id, seed, count, sizes, outstanding)


@dataclass(slots=True)
class Stage:
    """One scenario's view of a cluster.

    Attributes:
        number: Of the scenario; its choices follow from it.
    """

    number: int
    bookies: Bookies
    clients: Clients
    tally: Tally = field(default_factory=Tally)

    def create(
        self,
        writer: ClientProcess,
        shape: Shape,
        digest: str,
        *,
        sizes: tuple[int, ...] = (),
        ledger_id: int | None = None,
    ) -> Written:
        """A new ledger with a password and custom metadata of its own."""
        password = f"password {self.number}".encode().hex()
        custom = ",".join(f"{name}={value.hex()}" for name, value in CUSTOM.items())
        quorum = (shape.ensemble_size, shape.write_quorum, shape.ack_quorum)
        chosen = "-" if ledger_id is None else ledger_id
        made = writer.ask("create", *quorum, digest, password, custom, chosen)
        created = self._agreed_metadata(int(made[0]))
        source = Source(self.number, sizes)
        return Written(int(made[0]), shape, digest, password, source, writer, created)

    def compare_closed(
        self,
        ledger: Written,
        last_entry_id: int,
        length: int,
        *,
        recoverers: tuple[str, ...] = (),
        is_length_known: bool = True,
    ) -> None:
        """Both clients agree on the closed record, and read from it what was sent.

        Args:
            ledger: Closed by its writer or by recovery.
            last_entry_id: As the client said that closed it.
            length: The same, in payload bytes.
            recoverers: Who recovered it, when it was not closed by its writer.
            is_length_known: False when the length may be anything.
        """
        metadata = self._agreed_metadata(ledger.id)
        expect(metadata["state"], "CLOSED", "state")
        expect(metadata["last_entry_id"], last_entry_id, "last entry")
        expect(metadata["length"], length, "length")
        if is_length_known:
            self._check_length(ledger, last_entry_id, length, recoverers)
        for name in ("quorum", "digest", "password", "created_ms", "custom"):
            expect(metadata[name], ledger.created[name], name)
        expect(metadata["custom"], {k: v.hex() for k, v in CUSTOM.items()}, "custom metadata")
        self.tally.lost += max(0, ledger.writer.acknowledged - last_entry_id)
        for kind in KINDS:
            self.read(kind, ledger, last_entry_id)

    def _check_length(
        self, ledger: Written, last_entry_id: int, length: int, recoverers: tuple[str, ...]
    ) -> None:
        """The payloads' own sum; Java's recovery may count entries that it then leaves out.

        It starts from the length in the entry that carries the highest last add confirmed. When no
        entry after that one can be recovered, it closes with the length of an entry that is not
        part of the ledger (docs/INTEROP.md).
        """
        exact = ledger.source.length(last_entry_id)
        if length != exact and any(kind != OURS for kind in recoverers):
            beyond = range(last_entry_id + 1, ledger.writer.sent)
            if length in {ledger.source.length(entry_id) for entry_id in beyond}:
                self.tally.overstated += 1
                return
        expect(length, exact, "length of the payloads")

    def read(self, kind: str, ledger: Written, last_entry_id: int) -> None:
        """The whole ledger, once for each way to read it, compared with what was sent."""
        client = self.clients.staying(kind)
        seen = int(client.ask("open", *ledger.credentials)[0])
        expect(seen, last_entry_id, f"end of the ledger as {kind} opened it")
        if last_entry_id < 0:
            return
        for how in ["single", *["batches"] * (kind == JAVA and not ledger.shape.is_striped)]:
            got = client.read(ledger.id, 0, last_entry_id, how)
            self.compare(ledger, range(last_entry_id + 1), got)

    def compare(self, ledger: Written, wanted: range, got: list[Got]) -> None:
        """Count what a reader got against what was sent."""
        self.tally.entries += len(got)
        self.tally.lost += len(set(wanted) - {entry.entry_id for entry in got})
        for entry in got:
            payload = ledger.source.payload(entry.entry_id)
            is_same = (entry.size_bytes, entry.digest) == (
                len(payload),
                hashlib.sha256(payload).hexdigest(),
            )
            self.tally.changed += not is_same
            self.tally.invented += entry.entry_id >= ledger.writer.sent

    def _agreed_metadata(self, ledger_id: int) -> dict[str, Any]:
        theirs, ours = (self.clients.staying(kind).metadata(ledger_id) for kind in KINDS)
        if ours["created_ms"] < 0:
            # Not in the record, as Java leaves it by default; it then tells ZooKeeper's time.
            theirs["created_ms"] = ours["created_ms"]
        for name in sorted(theirs.keys() | ours.keys()):
            expect(ours.get(name), theirs.get(name), f"{name} as ours reads it, beside Java's")
        return ours

    def fragments(self, ledger: Written) -> list[Any]:
        """Fragments as both clients see them."""
        found: list[Any] = self._agreed_metadata(ledger.id)["fragments"]
        return found


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table.

    Attributes:
        what: Who does what, in a few words.
        ledger: Quorums and digest type.
        play: Raises when something is not as it has to be.
    """

    what: str
    ledger: str
    play: Callable[[Stage], None]


def expect(found: object, wanted: object, what: str) -> None:
    """Fails the scenario unless the two are equal."""
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")
