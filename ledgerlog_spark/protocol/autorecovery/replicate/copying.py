"""Copies the entries of one index to a bookie, with generators that `LedgerReplication` runs.

Reads and adds overlap: while a run is added, the next run is read. A run consists of consecutive
entries from one source. The entries of a striped ledger are read one by one, because no bookie has
consecutive entries of such a ledger.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ledgerlog_spark.model import (
    RUN_ENTRIES_MAX,
    Code,
    DigestType,
    Fragment,
    LedgerMetadata,
    Versioned,
)
from ledgerlog_spark.protocol.autorecovery.replicate.messages import (
    AddCopies,
    CopiesAdded,
    CopiesRead,
    Copy,
    EntriesListed,
    EntryRange,
    JobOutcome,
    ReadCopies,
    UnreadableEntries,
)
from ledgerlog_spark.protocol.autorecovery.replicate.ranges import covers, joined
from ledgerlog_spark.protocol.ledger.messages import LoadMetadata, MetadataOutcome
from ledgerlog_spark.protocol.ledger.quorum import write_set

T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""A generator with a part of the machine's steps. Each time it yields requests, these are sent
together, and the generator gets their replies."""

UNREADABLE_MAX = 1_000
"""Maximum number of failed reads of entries of one index. After more failures, the pass copies no
more entries of this index."""
SINGLE_READS_MAX = 64
"""Number of entries of a striped ledger that are requested together."""


class StopJobError(Exception):
    """The job must end with the outcome of this error."""

    def __init__(self, outcome: JobOutcome, detail: str = "") -> None:
        super().__init__(outcome.value)
        self.outcome = outcome
        self.detail = detail


class TargetError(Exception):
    """The bookie that should get the copies did not store them."""

    def __init__(self, bookie_id: str, code: Code) -> None:
        super().__init__(f"{bookie_id}: {code.value}")
        self.detail = f"{bookie_id}: {code.value}"


class RecordChangedError(Exception):
    """Another client has changed the record, so the next pass decides again what copies to add."""


@dataclass(slots=True)
class Copied:
    """The result of copying the entries of one index to a target.

    Attributes:
        connections: Numbers of the connections on which the entries were added.
        unreadable: Entries that no bookie returned.
        last_entry_id: An entry that the target stored; None if the target stored no entry.
        given_up: Entries that an operator gave up. Possibly no bookie has these entries.
        is_cut: Whether too many reads failed, so that the remaining entries of the index were not
            read.
    """

    connections: set[int] = field(default_factory=set)
    unreadable: list[UnreadableEntries] = field(default_factory=list)
    last_entry_id: int | None = None
    given_up: Sequence[EntryRange] = ()
    is_cut: bool = False

    @property
    def holes(self) -> list[EntryRange]:
        """The unreadable entries as ascending ranges."""
        return joined((one.first_entry_id, one.last_entry_id) for one in self.unreadable)


@dataclass(slots=True)
class Sources:
    """The bookies from which this pass can read the entries of a ledger.

    Attributes:
        lists: The lists of entries of the members. They only determine the order of the sources.
        away: Bookies from which the pass does not read, each with the reason: the bookie is not
            registered, or did not answer a read of this pass.
        registered: The registered bookies.
    """

    lists: dict[str, EntriesListed]
    registered: frozenset[str]
    away: dict[str, Code] = field(default_factory=dict)

    def of(self, metadata: LedgerMetadata, fragment: Fragment, entry_id: int) -> list[str]:
        """Return the members of the write set of an entry, first those that list the entry."""
        members = [fragment.ensemble[i] for i in write_set(metadata.quorum, entry_id)]
        return sorted(members, key=lambda name: not self._lists(name, entry_id))

    def _lists(self, name: str, entry_id: int) -> bool:
        listed = self.lists.get(name)
        return listed is not None and covers(listed.ranges, entry_id)

    def code_of(self, name: str) -> Code | None:
        """Return the reason for not reading from this bookie; None if it may be read from."""
        if name not in self.registered:
            return Code.UNAVAILABLE
        return self.away.get(name)


class CopyRun:
    """Copies runs of entries of one fragment to one target.

    Attributes:
        entries: Number of entries that targets stored.
        size_bytes: Number of the stored bytes of these entries.
    """

    def __init__(self, record: Versioned[LedgerMetadata], sources: Sources) -> None:
        self._record = record
        self._metadata = record.value
        self._sources = sources
        self._pending: tuple[Copy, ...] = ()
        self._target = ""
        self._copied = Copied()
        self.entries = 0
        self.size_bytes = 0

    def copy(self, fragment: Fragment, target: str, runs: Iterable[EntryRange]) -> Steps[Copied]:
        """Copy all entries of the runs that a bookie returns, and store them on `target`.

        Raises:
            TargetError: The target did not store a run.
            RecordChangedError: The record changed while absent entries were read again.
        """
        self._target, self._copied, self._pending = target, Copied(), ()
        suspects: list[int] = []
        chunks = self._singles(runs) if self._metadata.quorum.is_striped else self._whole(runs)
        for chunk in chunks:
            yield from self._read_chunk(fragment, chunk, suspects)
            if len(suspects) > UNREADABLE_MAX:
                self._copied.is_cut = True
                break
        yield from self._flush()
        if suspects:
            yield from self._settle(fragment, suspects)
        return self._copied

    def _whole(self, runs: Iterable[EntryRange]) -> Iterator[list[EntryRange]]:
        for run in runs:
            yield [run]

    def _singles(self, runs: Iterable[EntryRange]) -> Iterator[list[EntryRange]]:
        chunk: list[EntryRange] = []
        for first, last in runs:
            for entry_id in range(first, last + 1):
                chunk.append((entry_id, entry_id))
                if len(chunk) == SINGLE_READS_MAX:
                    yield chunk
                    chunk = []
        if chunk:
            yield chunk

    def _read_chunk(
        self, fragment: Fragment, chunk: Sequence[EntryRange], suspects: list[int]
    ) -> Steps[None]:
        """Read runs, and leave the last copies, which are not added yet, in `_pending`."""
        if self._metadata.digest_type is DigestType.DUMMY:
            for first, last in chunk:
                for entry_id in range(first, last + 1):
                    yield from self._read_all(fragment, entry_id, suspects)
        elif len(chunk) > 1:
            yield from self._read_singles(fragment, [first for first, _ in chunk], suspects)
        else:
            for first, last in chunk:
                yield from self._read_run(fragment, first, last, suspects)

    def _read_run(
        self, fragment: Fragment, first: int, last: int, suspects: list[int]
    ) -> Steps[None]:
        position = first
        while position <= last:
            count = min(last - position + 1, RUN_ENTRIES_MAX)
            copies = yield from self._read(fragment, position, count)
            if not copies:
                suspects.append(position)
                if len(suspects) > UNREADABLE_MAX:
                    return
                position += 1
                continue
            self._pending = copies
            position = copies[-1].entry_id + 1

    def _read(self, fragment: Fragment, entry_id: int, count: int) -> Steps[tuple[Copy, ...]]:
        """Read a run from the first source that returns its first entry; add the previous run."""
        for source in self._sources.of(self._metadata, fragment, entry_id):
            if source == self._target or self._sources.code_of(source) is not None:
                continue
            (reply,) = yield from self._with_add(ReadCopies(source, entry_id, count))
            if self._take_code(source, reply):
                return tuple(reply.copies)
        return ()

    def _read_singles(
        self, fragment: Fragment, ids: Sequence[int], suspects: list[int]
    ) -> Steps[None]:
        """Read entries together, each from its best source. If a read fails, repeat it alone."""
        firsts: list[tuple[int, str]] = []
        for entry_id in ids:
            names = self._sources.of(self._metadata, fragment, entry_id)
            usable = [n for n in names if n != self._target and not self._sources.code_of(n)]
            if usable:
                firsts.append((entry_id, usable[0]))
        replies = yield from self._with_add(*(ReadCopies(name, one, 1) for one, name in firsts))
        found: dict[int, tuple[Copy, ...]] = {}
        for (entry_id, source), reply in zip(firsts, replies, strict=True):
            if self._take_code(source, reply):
                found[entry_id] = tuple(reply.copies)
        for entry_id in ids:
            if entry_id not in found:
                found[entry_id] = yield from self._read(fragment, entry_id, 1)
            if not found[entry_id]:
                suspects.append(entry_id)
        self._pending = tuple(copy for one in ids for copy in found[one])

    def _read_all(self, fragment: Fragment, entry_id: int, suspects: list[int]) -> Steps[None]:
        """Read an entry without a digest from every source, and compare the copies."""
        sources = [
            name
            for name in self._sources.of(self._metadata, fragment, entry_id)
            if name != self._target and self._sources.code_of(name) is None
        ]
        replies = yield from self._with_add(*(ReadCopies(name, entry_id, 1) for name in sources))
        copies: list[Copy] = []
        for source, reply in zip(sources, replies, strict=True):
            if self._take_code(source, reply):
                copies.append(reply.copies[0])
        if len({(one.length, bytes(one.payload)) for one in copies}) > 1:
            raise StopJobError(JobOutcome.COPIES_DIFFER, f"entry {entry_id}")
        if copies:
            self._pending = (copies[0],)
        else:
            suspects.append(entry_id)

    def _take_code(self, source: str, reply: CopiesRead) -> bool:
        """Return whether the reply has entries; note the source as away if it did not answer."""
        if reply.code in (Code.TIMEOUT, Code.UNAVAILABLE):
            self._sources.away[source] = reply.code
        return reply.code is Code.OK and bool(reply.copies)

    def _with_add(self, *reads: ReadCopies) -> Steps[list[CopiesRead]]:
        """Send reads together with the add of the pending run; return the replies to the reads."""
        if not self._pending:
            replies = (yield reads) if reads else []
            return list(replies)
        pending, self._pending = self._pending, ()
        added, *replies = yield (AddCopies(self._target, pending), *reads)
        self._take_added(pending, added)
        return list(replies)

    def _flush(self) -> Steps[None]:
        yield from self._with_add()

    def _take_added(self, copies: tuple[Copy, ...], reply: CopiesAdded) -> None:
        if reply.code is not Code.OK:
            raise TargetError(self._target, reply.code)
        self._copied.connections.add(reply.connection)
        self._copied.last_entry_id = copies[-1].entry_id
        self.entries += len(copies)
        self.size_bytes += sum(len(one.stored) for one in copies)

    def _settle(self, fragment: Fragment, suspects: Sequence[int]) -> Steps[None]:
        """Read entries without a copy again, before and after a sync (AUTORECOVERY.md#X8)."""
        before: dict[int, dict[str, Code]] = {}
        for entry_id in suspects:
            before[entry_id] = yield from self._ask_all(fragment, entry_id)
        left = [one for one in suspects if Code.OK not in before[one].values()]
        if left:
            (loaded,) = yield (LoadMetadata(0, sync_first=True),)
            if loaded.outcome is not MetadataOutcome.OK or (
                loaded.versioned.version != self._record.version
            ):
                raise RecordChangedError
        for entry_id in left:
            after = yield from self._ask_all(fragment, entry_id)
            if Code.OK in after.values():
                continue
            codes = (*before[entry_id].values(), *after.values())
            is_lost = all(is_denial(code) for code in codes)
            answers = tuple(sorted(after.items()))
            self._copied.unreadable.append(UnreadableEntries(entry_id, entry_id, is_lost, answers))
        yield from self._flush()

    def _ask_all(self, fragment: Fragment, entry_id: int) -> Steps[dict[str, Code]]:
        """Read an entry from the members of its write set until one returns a copy to add."""
        answers: dict[str, Code] = {}
        for name in self._sources.of(self._metadata, fragment, entry_id):
            code = self._sources.code_of(name)
            if code is None:
                (reply,) = yield from self._with_add(ReadCopies(name, entry_id, 1))
                code = reply.code
                if self._take_code(name, reply):
                    self._pending = tuple(reply.copies)
            answers[name] = code
            if answers[name] is Code.OK:
                break
        return answers


def is_denial(code: Code) -> bool:
    """Whether a bookie answered that it does not have the entry."""
    return code.is_absent


def is_settled(entries: UnreadableEntries, registered: frozenset[str]) -> bool:
    """Whether every registered bookie of the write set denied the entries, or has damaged copies.

    If the result is False, a later attempt may be able to read the entries.
    """
    return all(
        is_denial(code) or code is Code.DIGEST_MISMATCH
        for name, code in entries.answers
        if name in registered
    )
