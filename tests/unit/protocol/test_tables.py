"""Every pair of phase and event type of every machine: handled, ignored on purpose, or asserted."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, get_args

import pytest

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, Quorum, Version, Versioned
from ledgerlog_spark.protocol.dispatch import IGNORED, REFUSED, Table, Unhandled
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead
from ledgerlog_spark.protocol.ledger.read.lac import LAC_TABLE, LacPhase, LacReader
from ledgerlog_spark.protocol.ledger.read.reader import READER_TABLE, LedgerReader, ReaderPhase
from ledgerlog_spark.protocol.ledger.read_room import RoomMade
from ledgerlog_spark.protocol.ledger.recover.recovery import (
    RECOVERY_TABLE,
    LedgerRecovery,
    RecoveryPhase,
)
from ledgerlog_spark.protocol.ledger.write.settings import WriterPhase
from ledgerlog_spark.protocol.ledger.write.writer import WRITER_TABLE, LedgerWriter
from tests.fixtures.kinds import all_of
from tests.transcripts.ledger_player import LedgerPlayer

EVENTS: tuple[type, ...] = get_args(m.Event)
METADATA = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("b0", "b1", "b2")),))
NOT_ASKED = 1_000_000

MACHINES: dict[type, tuple[type[Enum], Table[Any, Any]]] = {
    LedgerWriter: (WriterPhase, WRITER_TABLE),
    LedgerRecovery: (RecoveryPhase, RECOVERY_TABLE),
    LedgerReader: (ReaderPhase, READER_TABLE),
    LacReader: (LacPhase, LAC_TABLE),
}

WAY_TO: dict[Enum, str] = {
    WriterPhase.OPEN: "",
    WriterPhase.LISTING: "add 1, timeout b1 0",
    WriterPhase.CHANGING: "add 1, timeout b1 0, list b3",
    WriterPhase.CLOSING: "close",
    WriterPhase.CLOSED: "close, cas ok",
    WriterPhase.FAILED: "add 1, fenced b1 0",
    RecoveryPhase.NEW: "",
    RecoveryPhase.LOADING: "start",
    RecoveryPhase.MARKING: "start, loaded",
    RecoveryPhase.FENCING: "start, loaded, cas ok",
    RecoveryPhase.READING: "start, loaded, cas ok, lac b0 no_entry, lac b1 no_entry",
    RecoveryPhase.MEASURING: (
        "start, loaded, cas ok, lac b0 0, lac b1 0, entry b1 1 no_entry, entry b0 1 no_entry"
    ),
    RecoveryPhase.CHECKING: (
        "start, loaded, cas ok, lac b0 no_entry, lac b1 no_entry, entry b0 0 no_entry,"
        " entry b1 0 no_entry"
    ),
    RecoveryPhase.CLOSING: (
        "start, loaded, cas ok, lac b0 no_entry, lac b1 no_entry, entry b0 0 no_entry,"
        " entry b1 0 no_entry"
    ),
    RecoveryPhase.WAITING: "start, loaded, cas ok, lac b0 timeout, lac b1 timeout, lac b2 timeout",
    RecoveryPhase.DONE: "start, loaded, cas ok, lac b0 unauthorized",
}


def machine_in(kind: type, phase: Enum) -> Any:
    if kind in (LedgerWriter, LedgerRecovery):
        player = LedgerPlayer()
        player.run("w ledger e=3 w=3 a=2")
        name = "w"
        if kind is LedgerRecovery:
            is_below_floor = phase is RecoveryPhase.CHECKING
            player.run("r recovery floor=0" if is_below_floor else "r recovery")
            name = "r"
        for command in filter(None, WAY_TO[phase].split(",")):
            player.run(f"{name} {command.strip()}")
        return player.machines[name]
    if kind is LedgerReader:
        reader = LedgerReader(metadata=METADATA, first_entry_id=0, last_entry_id=0)
        steps = list(ReaderPhase).index(ReaderPhase(phase))
        effects = reader.handle(m.Start()) if steps else []
        for rounds in range(3):
            if reader.phase is phase:
                return reader
            while reader.phase is ReaderPhase.READING:
                reads = [e for e in effects if isinstance(e, m.SendRead)]
                effects = [
                    effect
                    for e in reads
                    for effect in reader.handle(m.ReadReplied(e.request, Code.NO_ENTRY, None))
                ]
            if reader.phase is ReaderPhase.RELOADING and phase is not ReaderPhase.RELOADING:
                loaded = Versioned(METADATA, Version(1, rounds))
                number = next(e.request for e in effects if isinstance(e, m.LoadMetadata))
                effects = reader.handle(m.MetadataLoaded(number, m.MetadataOutcome.OK, loaded))
        return reader
    lac = LacReader(metadata=METADATA)
    if phase is not LacPhase.NEW:
        sends = all_of(m.SendReadLac, lac.handle(m.Start()))
        for send in sends if phase is LacPhase.DONE else []:
            if lac.phase is not LacPhase.DONE:
                lac.handle(m.LacReplied(send.request, Code.OK, 4))
    return lac


def event_of(kind: type) -> Any:
    return {
        m.AddReplied: m.AddReplied(NOT_ASKED, Code.OK),
        m.ReadReplied: m.ReadReplied(NOT_ASKED, Code.NO_ENTRY, None),
        m.BatchReplied: m.BatchReplied(NOT_ASKED, Code.NO_ENTRY, ()),
        m.LacReplied: m.LacReplied(NOT_ASKED, Code.NO_ENTRY),
        m.MetadataLoaded: m.MetadataLoaded(NOT_ASKED, m.MetadataOutcome.GONE),
        m.MetadataWritten: m.MetadataWritten(NOT_ASKED, m.MetadataOutcome.CONFLICT),
        m.BookiesListed: m.BookiesListed(NOT_ASKED, ("b9",)),
        IdentitiesRead: IdentitiesRead(NOT_ASKED, ()),
        m.TimerFired: m.TimerFired(NOT_ASKED),
        m.Start: m.Start(),
        m.AddRequested: m.AddRequested((b"x",)),
        m.CloseRequested: m.CloseRequested(),
        m.MemberLost: m.MemberLost("b9"),
        m.EntriesTaken: m.EntriesTaken(-1),
        RoomMade: RoomMade(),
    }[kind]


PAIRS = [
    pytest.param(machine, phase, event, id=f"{machine.__name__}-{phase.name}-{event.__name__}")
    for machine, (phases, _) in MACHINES.items()
    for phase in phases
    for event in EVENTS
]


@pytest.mark.parametrize(("machine", "phase", "event"), PAIRS)
def test_each_pair_is_handled_or_ignored_or_refused_or_asserted(
    machine: type, phase: Enum, event: type
) -> None:
    one = machine_in(machine, phase)
    assert one.phase is phase
    entry = MACHINES[machine][1][phase].get(event)
    if entry is None:
        with pytest.raises(AssertionError):
            one.handle(event_of(event))
    elif entry is REFUSED:
        with pytest.raises(LocalProtocolError):
            one.handle(event_of(event))
    elif entry is IGNORED:
        assert one.handle(event_of(event)) == []
    elif event in (m.Start, m.AddRequested, m.CloseRequested):
        assert one.handle(event_of(event)), "asking for something has effects"
    elif machine in (LedgerWriter, LedgerRecovery):
        late = one.handle(event_of(event))
        is_fill = all(isinstance(effect, m.SendRead) for effect in late)
        assert late == [] or is_fill, "an answer to nothing that is open changes nothing"
        assert one.phase is phase


@pytest.mark.parametrize("machine", MACHINES, ids=lambda kind: kind.__name__)
def test_every_phase_has_a_row_of_methods_of_its_machine(machine: type) -> None:
    phases, table = MACHINES[machine]
    assert list(table) == list(phases)
    for phase_row in table.values():
        for event, handler in phase_row.items():
            assert event in EVENTS
            is_method = handler is getattr(machine, getattr(handler, "__name__", ""), None)
            assert isinstance(handler, Unhandled) or is_method


def rendered() -> str:
    """The tables in the form of docs/PROTOCOL.md."""
    lines: list[str] = []
    for machine, (_, table) in MACHINES.items():
        lines += [
            f"### {machine.__name__}",
            "",
            "| phase | event | what happens |",
            "|---|---|---|",
        ]
        for phase, phase_row in table.items():
            for event, handler in phase_row.items():
                shown = handler.value if isinstance(handler, Unhandled) else f"`{handler.__name__}`"
                lines.append(f"| {phase.name} | {event.__name__} | {shown} |")
        lines.append("")
    return "\n".join(lines)


def test_the_tables_in_the_documentation_are_the_tables_of_the_machines() -> None:
    text = (Path(__file__).parents[3] / "docs" / "PROTOCOL.md").read_text()
    assert rendered() in text, "paste tests.unit.protocol.test_tables.rendered()"
