"""The stage of a scenario: bookies, clients, and the comparison of read and sent entries."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ledgerlog_spark.local.cluster import Cluster
from tests.interop.client_process import ClientProcess, Clients, Got
from tests.interop.healers import Healers
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
        """Whether a bookie holds only some of the entries. Then no client reads batches."""
        return self.ensemble_size > self.write_quorum

    def __str__(self) -> str:
        return f"E{self.ensemble_size}/Qw{self.write_quorum}/Qa{self.ack_quorum}"


WHOLE = Shape(3, 3, 2)
STRIPED = Shape(4, 3, 2)
STRIPED_OVER_THREE = Shape(3, 2, 2)


class Bookies(Protocol):
    """Bookies of either kind that can be stopped and restarted.

    Attributes:
        healers: Auto-recovery of either make.
    """

    healers: Healers

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports of all bookies by their ids."""

    def kill(self, bookie_id: str) -> None:
        """SIGKILL."""

    def start(self, *bookie_ids: str) -> None:
        """Returns when they serve."""


class OurBookies:
    """The bookies of a local cluster.

    Attributes:
        healers: Auto-recovery of either make.
    """

    def __init__(self, cluster: Cluster, healers: Healers) -> None:
        self._cluster = cluster
        self.healers = healers

    @property
    def ids(self) -> tuple[str, ...]:
        """The registered ids."""
        return tuple(member.id for member in self._cluster.members.bookies)

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports of all bookies by their ids."""
        return {member.id: member.port for member in self._cluster.members.bookies}

    def kill(self, bookie_id: str) -> None:
        """SIGKILL."""
        self._cluster.kill(bookie_id)

    def stop(self, bookie_id: str) -> None:
        """Stop a bookie with SIGTERM, so that it withdraws its registration."""
        self._cluster.kill(bookie_id, signal.SIGTERM)

    def start(self, *bookie_ids: str) -> None:
        """Returns when they serve."""
        for bookie_id in bookie_ids:
            self._cluster.start(bookie_id)

    def copy(self, bookie_id: str) -> Path:
        """Copy the directory of a bookie, which is stopped meanwhile; return the copy."""
        directory = self._directory(bookie_id)
        copy = Path(tempfile.mkdtemp(prefix=f"{bookie_id}-", dir=directory.parent)) / "copy"
        self.stop(bookie_id)
        shutil.copytree(directory, copy)
        self.start(bookie_id)
        return copy

    def restore(self, bookie_id: str, copy: Path) -> None:
        """Kill a bookie, and start it with an older copy of its directory."""
        directory = self._directory(bookie_id)
        self.kill(bookie_id)
        shutil.rmtree(directory)
        shutil.copytree(copy, directory)
        self.start(bookie_id)

    def doubt_epoch(self, bookie_id: str) -> int:
        """The number of possible losses in the MANIFEST of a bookie."""
        text = (self._directory(bookie_id) / "MANIFEST").read_text()
        return int(json.loads(text.split("\n", 1)[1])["doubt"]["epoch"])

    def _directory(self, bookie_id: str) -> Path:
        (found,) = (m.directory for m in self._cluster.members.bookies if m.id == bookie_id)
        return Path(found)


@dataclass(slots=True)
class Tally:
    """The results of the comparisons.

    Attributes:
        entries: Number of entries that all readers together read and compared.
        lost: Acknowledged entries that a reader did not get.
        changed: Entries with a payload that was not sent.
        invented: Entries that were never sent.
        in_doubt: Entries that a killed writer had sent, but not reported as acknowledged.
        overstated: Ledgers that Java's recovery closed with too large a length.
    """

    entries: int = 0
    lost: int = 0
    changed: int = 0
    invented: int = 0
    in_doubt: int = 0
    overstated: int = 0

    def add(self, other: Tally) -> None:
        """Add the results of other comparisons."""
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
    """A ledger, and the entries that its writer sent."""

    id: int
    shape: Shape
    digest: str
    password: str
    source: Source
    writer: ClientProcess
    created: dict[str, Any]

    @property
    def credentials(self) -> tuple[int, str, str]:
        """The arguments with which the ledger is opened."""
        return self.id, self.digest, self.password

    def kill_writer(self, tally: Tally) -> None:
        """Kill the writer, and count the entries in doubt."""
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
        number: The number of the scenario, which determines its choices.
    """

    number: int
    bookies: Bookies
    clients: Clients
    tally: Tally = field(default_factory=Tally)

    @property
    def our_bookies(self) -> OurBookies:
        """The bookies, of which all must be ours."""
        assert isinstance(self.bookies, OurBookies)
        return self.bookies

    def create(
        self,
        writer: ClientProcess,
        shape: Shape,
        digest: str,
        *,
        sizes: tuple[int, ...] = (),
        ledger_id: int | None = None,
    ) -> Written:
        """Create a ledger with its own password and custom metadata."""
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
        """Check that both clients read the same closed metadata and the sent entries.

        Args:
            ledger: A ledger that its writer or a recovery has closed.
            last_entry_id: The last entry according to the client that closed the ledger.
            length: The same, in payload bytes.
            recoverers: The clients that recovered it, if its writer did not close it.
            is_length_known: False if the length may have any value.
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
        """Check that the length is the sum of the payloads, with an exception for Java's recovery.

        Java's recovery starts with the length in the entry with the highest last add confirmed. If
        no entry after that LAC can be recovered, Java closes the ledger with the length of an entry
        that is not part of the ledger (docs/INTEROP.md).
        """
        exact = ledger.source.length(last_entry_id)
        if length != exact and any(kind != OURS for kind in recoverers):
            beyond = range(last_entry_id + 1, ledger.writer.sent)
            if length in {ledger.source.length(entry_id) for entry_id in beyond}:
                self.tally.overstated += 1
                return
        expect(length, exact, "length of the payloads")

    def read(self, kind: str, ledger: Written, last_entry_id: int) -> None:
        """Read the whole ledger in each possible way, and compare it with the sent entries."""
        client = self.clients.staying(kind)
        seen = int(client.ask("open", *ledger.credentials)[0])
        expect(seen, last_entry_id, f"end of the ledger as {kind} opened it")
        if last_entry_id < 0:
            return
        for how in ["single", *["batches"] * (kind == JAVA and not ledger.shape.is_striped)]:
            got = client.read(ledger.id, 0, last_entry_id, how)
            self.compare(ledger, range(last_entry_id + 1), got)

    def compare(self, ledger: Written, wanted: range, got: list[Got]) -> None:
        """Compare the entries of a reader with the sent entries, and count the differences."""
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
            # By default, Java does not store this time, and then shows ZooKeeper's time.
            theirs["created_ms"] = ours["created_ms"]
        for name in sorted(theirs.keys() | ours.keys()):
            expect(ours.get(name), theirs.get(name), f"{name} as ours reads it, beside Java's")
        return ours

    def fragments(self, ledger: Written) -> list[Any]:
        """The fragments, in a form that is the same for both clients."""
        found: list[Any] = self._agreed_metadata(ledger.id)["fragments"]
        return found


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table.

    Attributes:
        what: A short description.
        ledger: Quorums and digest type.
        play: Runs the scenario, and raises an error if a check fails.
    """

    what: str
    ledger: str
    play: Callable[[Stage], None]


def expect(found: object, wanted: object, what: str) -> None:
    """Fail the scenario unless the two values are equal."""
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")
