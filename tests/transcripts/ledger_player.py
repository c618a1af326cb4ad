"""Stories of one ledger: writers and recoveries, their bookies, and the record in the store.

Commands are `<machine> <verb> <arguments>`; machines are named when they are made:

    w ledger e=3 w=3 a=2               a writer; its bookies are b0, b1, ...
    w ledger e=3 w=3 a=2 changes=1     ... with at most one ensemble change
    r1 recovery [floor=N]              a recovery that reads one or two entries ahead
    w add N                            a run of N entries of ten bytes
    w ok b1 0                          the answer of b1 to the run that begins at entry 0
    w ok b1@2 0                        ... to the request that was sent to it as index 2
    w timeout b1 0                     any code of model.Code, in lower case
    w list b3 b4                       the bookies that accept writes
    r1 identities b3 b4                the bookies that have a cookie, and their identities
    r1 identities unavailable          ... cannot be read
    w cas ok                           the record is written and the answer arrives
    w cas applied                      the record is written and the answer is lost
    w cas lost                         the record is not written and no answer arrives
    w cas conflict|gone|unavailable    the store's answer
    r1 cas bookie_changed              ... to a write with identities
    w loaded                           the record as it is now
    w timer                            the oldest timer fires
    w close
    r1 start
    r1 lac b0 3                        a fencing read of the last entry finds LAC 3
    r1 lac b0 no_entry                 ... or a code
    r1 entry b0 4                      a fencing read of entry 4 finds it
    r1 entry b0 4 no_entry             ... or a code
    store in_recovery | closed LAST    another client changes the record
"""

from __future__ import annotations

import re
from typing import Any

from ledgerlog_spark.model import (
    NO_ENTRY,
    Code,
    Fragment,
    LedgerMetadata,
    Quorum,
    Version,
    Versioned,
)
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, Identity, ReadIdentities
from ledgerlog_spark.protocol.ledger.recover.reads import ReadAhead
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery, RecoverySettings
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter

ENTRY_SIZE_BYTES = 10


class LedgerPlayer:
    """The state of one story."""

    def __init__(self) -> None:
        self.machines: dict[str, LedgerWriter | LedgerRecovery] = {}
        self.stored: Versioned[LedgerMetadata] | None = None
        self.open: dict[str, dict[int, m.Request]] = {}
        self.output: list[str] = []

    def run(self, command: str) -> list[str]:
        """Return the effects of one command, as lines."""
        self.output = []
        name, verb, *arguments = command.split()
        if name == "store":
            self._change_store(verb, arguments)
        elif verb == "ledger":
            self._make_writer(name, arguments)
        elif verb == "recovery":
            self._make_recovery(name, arguments)
        else:
            self._handle(name, self._event(name, verb, arguments))
        return self.output

    def _make_writer(self, name: str, arguments: list[str]) -> None:
        options = dict(a.split("=") for a in arguments)
        quorum = Quorum(int(options["e"]), int(options["w"]), int(options["a"]))
        ensemble = tuple(f"b{i}" for i in range(quorum.ensemble_size))
        metadata = LedgerMetadata(quorum, (Fragment(0, ensemble),))
        self.stored = Versioned(metadata, Version(1, 0))
        settings = WriterSettings(
            window=Window(entries_max=int(options.get("window", 1_000))),
            ensemble_changes_max=int(options.get("changes", 100)),
        )
        self.machines[name] = LedgerWriter(
            ledger_id=7,
            created=self.stored,
            settings=settings,
            absent=options.get("absent", "").split(","),
        )
        self.open[name] = {}

    def _make_recovery(self, name: str, arguments: list[str]) -> None:
        options = dict(a.split("=") for a in arguments)
        floor = int(options.get("floor", NO_ENTRY))
        read_ahead = ReadAhead(entries_first=1, entries_max=2, batch_entries_max=1)
        settings = RecoverySettings(read_ahead=read_ahead)
        self.machines[name] = LedgerRecovery(
            ledger_id=7, password=b"", floor_entry_id=floor, settings=settings
        )
        self.open[name] = {}

    def _change_store(self, verb: str, arguments: list[str]) -> None:
        assert self.stored is not None
        metadata = self.stored.value
        if verb == "in_recovery":
            self._write(metadata.in_recovery())
        else:
            last = int(arguments[0])
            self._write(metadata.closed(last_entry_id=last, length=(last + 1) * ENTRY_SIZE_BYTES))

    def _write(self, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        assert self.stored is not None
        number = self.stored.version.number + 1
        self.stored = Versioned(metadata, Version(1, number))
        return self.stored

    def _take(self, name: str, kind: type, **fields: Any) -> Any:
        """Take the oldest open request of a kind with these fields."""
        for number, request in self.open[name].items():
            if isinstance(request, kind) and all(
                _field(request, key) == value for key, value in fields.items()
            ):
                del self.open[name][number]
                return request
        raise AssertionError(f"{name} has no open {kind.__name__} {fields}: {self.open[name]}")

    def _event(  # noqa: PLR0911 - one line for each verb
        self, name: str, verb: str, arguments: list[str]
    ) -> m.Event:
        match verb:
            case "add":
                return m.AddRequested(
                    tuple(b"x" * ENTRY_SIZE_BYTES for _ in range(int(arguments[0])))
                )
            case "close":
                return m.CloseRequested()
            case "lost":
                return m.MemberLost(arguments[0])
            case "start":
                return m.Start()
            case "timer":
                return m.TimerFired(self._take(name, m.StartTimer).request)
            case "list":
                return m.BookiesListed(self._take(name, m.ListBookies).request, tuple(arguments))
            case "identities":
                request = self._take(name, ReadIdentities).request
                if arguments == ["unavailable"]:
                    return IdentitiesRead(request, None)
                found = tuple(Identity(bookie_id, bookie_id) for bookie_id in arguments)
                return IdentitiesRead(request, found)
            case "loaded":
                request = self._take(name, m.LoadMetadata).request
                return m.MetadataLoaded(request, m.MetadataOutcome.OK, self.stored)
            case "cas":
                return self._cas(name, arguments[0])
            case "lac":
                return self._lac(name, arguments[0], arguments[1])
            case "entry":
                return self._entry(name, arguments[0], int(arguments[1]), arguments[2:])
            case _:
                bookie_id, _, index = arguments[0].partition("@")
                at = {"index": int(index)} if index else {}
                first = int(arguments[1])
                sent = self._take(name, m.SendAdd, bookie_id=bookie_id, first=first, **at)
                return m.AddReplied(sent.request, Code(verb))

    def _cas(self, name: str, outcome: str) -> m.MetadataWritten:
        request: m.CasMetadata = self._take(name, m.CasMetadata)
        assert self.stored is not None
        if outcome in ("ok", "applied"):
            if request.version != self.stored.version:
                return m.MetadataWritten(request.request, m.MetadataOutcome.CONFLICT)
            written = self._write(request.metadata)
            if outcome == "ok":
                return m.MetadataWritten(request.request, m.MetadataOutcome.OK, written)
        if outcome in ("applied", "lost"):
            return m.MetadataWritten(request.request, m.MetadataOutcome.UNKNOWN)
        return m.MetadataWritten(request.request, m.MetadataOutcome(outcome.replace("_", " ")))

    def _lac(self, name: str, bookie_id: str, what: str) -> m.ReadReplied:
        request = self._take(name, m.SendRead, bookie_id=bookie_id, entry_id=NO_ENTRY)
        if re.fullmatch(r"-?\d+", what):
            lac = int(what)
            entry = m.StoredEntry(lac + 1, lac, (lac + 2) * ENTRY_SIZE_BYTES, b"x" * 10)
            return m.ReadReplied(request.request, Code.OK, entry)
        return m.ReadReplied(request.request, Code(what), None)

    def _entry(self, name: str, bookie_id: str, entry_id: int, rest: list[str]) -> m.ReadReplied:
        request = self._take(name, m.SendRead, bookie_id=bookie_id, entry_id=entry_id)
        if rest:
            return m.ReadReplied(request.request, Code(rest[0]), None)
        length = (entry_id + 1) * ENTRY_SIZE_BYTES
        entry = m.StoredEntry(entry_id, entry_id - 1, length, b"x" * ENTRY_SIZE_BYTES)
        return m.ReadReplied(request.request, Code.OK, entry)

    def _handle(self, name: str, event: m.Event) -> None:
        for effect in self.machines[name].handle(event):
            if isinstance(effect, m.Request):
                self.open[name][effect.request] = effect
            self.output.append(self._describe(name, effect))

    def _describe(self, name: str, effect: m.Effect) -> str:
        several = f"{name}: " if len(self.machines) > 1 else ""
        return several + describe(effect)


def _field(request: m.Request, name: str) -> object:
    if name == "first":
        return request.run.first_entry_id if isinstance(request, m.SendAdd) else None
    return getattr(request, name)


def record(metadata: LedgerMetadata) -> str:
    """A record on one line."""
    fragments = " ".join(f"{f.first_entry_id}:({','.join(f.ensemble)})" for f in metadata.fragments)
    end = f" last={metadata.last_entry_id} length={metadata.length}" if metadata.is_closed else ""
    return f"{metadata.state.name} {fragments}{end}"


def describe(effect: m.Effect) -> str:  # noqa: PLR0911 - one line for each effect
    """An effect on one line."""
    match effect:
        case m.SendAdd(_, bookie_id, index, run, entry_ids, is_recovery):
            ids = f"{run.first_entry_id}..{run.last_entry_id}"
            part = f" only {','.join(map(str, entry_ids))}" if entry_ids is not None else ""
            flag = " recovery" if is_recovery else ""
            return f"add {bookie_id}@{index} {ids}{part} lac={run.last_add_confirmed}{flag}"
        case m.SendRead(_, bookie_id, index, entry_id, fence, _):
            flag = " fence" if fence else ""
            return f"read {bookie_id}@{index} {entry_id}{flag}"
        case m.LoadMetadata(_, sync_first):
            return "load after sync" if sync_first else "load"
        case m.CasMetadata(_, metadata, version, identities):
            same = ",".join(one.bookie_id for one in identities)
            return f"cas v{version.number} {record(metadata)}{same and f' if {same} is the same'}"
        case ReadIdentities(_, bookie_ids):
            return f"identities {' '.join(bookie_ids)}"
        case m.ListBookies(_, is_fresh):
            return "list" if is_fresh else "list from memory"
        case m.StartTimer(_, delay_ms):
            return f"timer {delay_ms}ms"
        case m.RunConfirmed(first, last):
            return f"confirmed {first}..{last}"
        case m.EnsembleChanged(first, ensemble, replaced, returned):
            without = f" without {','.join(replaced)}" if replaced else ""
            again = f" again with {','.join(returned)}" if returned else ""
            return f"ensemble {first}:({','.join(ensemble)}){without}{again}"
        case m.HolesLeft(_, holes):
            places = (f"{h.bookie_id} {h.first_entry_id}..{h.last_entry_id}" for h in holes)
            return f"holes {', '.join(places)}"
        case m.NoReplacement(answers, wanted):
            return f"goes on without {','.join(name for name, _ in answers)} of {wanted}"
        case m.LedgerClosed(versioned):
            return f"closed {record(versioned.value)}"
        case m.LedgerFailed():
            unknown = effect.first_unknown_entry_id
            doubt = "" if unknown is None else f" unknown from {unknown}"
            sure = "definite" if effect.is_definite else "not definite"
            return f"failed {effect.failure.name} {sure} safe to {effect.last_add_confirmed}{doubt}"
        case _:
            return repr(effect)
