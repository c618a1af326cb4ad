"""Stories of a leader log: processes that lead it, their ledgers, and the list in the store.

a leads                    a process becomes the leader of the log, with successful answers
b opens                    a process begins to open the log
a add 3                    an append of 3 records, 100 bytes
a confirmed 900            the ledger's entries reached an ack quorum
a broken 900               the ledger's bookies fail, and nothing replaces them
a fenced 900               another process fenced the ledger, and its writer noticed
x recovers 900 2           another program recovers and closes the ledger with 2 entries
b dies                     the process is gone, and the store deletes its candidate node
a ok                       the oldest request is carried out and answered
a ok write head            ... the oldest request that begins with these words
a rest                     all requests except timers, oldest first
a reply lost               the write of the head happens, and its answer is lost
a request lost             the write of the head does not happen, and no answer arrives
a timer                    the oldest timer of a retry fires
a rolls                    the application requests another ledger
"""

from __future__ import annotations

from typing import Any

from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.claim import claim_of
from tests.transcripts.log_player import describe as describe_request
from tests.transcripts.log_player import short
from tests.unit.leader.bench import Bench, Process

REST_MAX = 100


class LeaderPlayer:
    """The state of one story."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.processes: dict[str, Process] = {}
        self._told: dict[str, list[Any]] = {}
        self.output: list[str] = []

    def run(self, command: str) -> list[str]:
        """Return the effects of one command, as lines."""
        self.output = []
        name, verb, *arguments = command.split()
        if verb == "recovers":
            ledger_id, count = map(int, arguments)
            self.bench.seal(ledger_id, keep=count)
            return []
        if verb in {"opens", "leads"}:
            self._begin(name)
        if verb != "opens":
            self._go_on(name, verb, " ".join(arguments))
        return self.output

    def _begin(self, name: str) -> None:
        process = self.processes[name] = self.bench.process()
        told = self._told[name] = []
        tell = process.tell

        def telling(event: Any) -> None:
            before = [*process.waiting], [*process.orders], [*process.said]
            tell(event)
            lists = process.orders, process.said, process.waiting
            seen = (before[1], before[2], before[0])
            for now, then in zip(lists, seen, strict=True):
                told.extend(each for each in now if all(each is not old for old in then))
            self._flush(name)

        process.tell = telling
        process.start()

    def _flush(self, name: str) -> None:
        several = f"{name}: " if len(self.processes) > 1 else ""
        self.output += [several + describe(effect) for effect in self._told[name]]
        self._told[name].clear()

    def _go_on(self, name: str, verb: str, rest: str) -> None:
        process = self.processes[name]
        match verb:
            case "add":
                process.append(int(rest))
            case "confirmed":
                process.confirm(int(rest))
            case "broken" | "fenced":
                process.break_ledger(int(rest), is_lost=verb == "fenced")
            case "leads" | "rest":
                self._rest(process)
            case "ok":
                ask = next(a for a in self._requests(process) if describe(a).startswith(rest))
                process.waiting.remove(ask)
                process.tell(process.carry_out(ask))
            case "reply" | "request":
                process.lose_reply(applied=verb == "reply")
            case "timer":
                process.fire()
            case "dies":
                self.bench.candidates.discard(process.machine._candidacy.claim)
            case "rolls":
                process.tell(lm.RollRequested())
            case _:
                raise AssertionError(verb)

    def _requests(self, process: Process) -> list[Any]:
        return [ask for ask in process.waiting if not isinstance(ask, StartTimer)]

    def _rest(self, process: Process) -> None:
        for _ in range(REST_MAX):
            waiting = self._requests(process)
            if not waiting:
                return
            process.waiting.remove(waiting[0])
            process.tell(process.carry_out(waiting[0]))
        raise AssertionError("requests come without end")


def describe(effect: Any) -> str:  # noqa: PLR0911 - one line for each effect
    """An effect on one line."""
    match effect:
        case lm.CreateLedger():
            return "create ledger"
        case lm.SealLedger():
            return f"seal {effect.ledger_id}"
        case lm.CloseLedger():
            return f"close {effect.ledger_id}"
        case lm.RecoverLedger():
            return f"recover {effect.ledger_id} floor={effect.floor_entry_id}"
        case lm.JoinCandidates():
            return f"join candidates claim={_number(effect.claim)}"
        case lm.ReadCandidate():
            return f"read candidate claim={_number(effect.claim)}"
        case m.DropLedger():
            return f"drop {effect.ledger_id}"
        case m.WriteHead(token, head):
            ledgers = " ".join(f"{o.ledger_id}@{o.first_offset}" for o in head.open_ledgers)
            opened = f" open {ledgers}" if ledgers else ""
            claim = f" claim={_number(claim_of(head))}" if claim_of(head) else ""
            return f"write head end={head.end_offset}{opened}{claim} token={short(token)}"
        case lm.AppendEntry():
            return f"append to {effect.ledger_id} entry {effect.entry_id} at {effect.first_offset}"
        case StartTimer(_, delay_ms):
            return f"timer {delay_ms}ms"
        case lm.LeaderOpened():
            head = effect.head
            return f"leads with {head.open_ledgers[-1].ledger_id} from {head.end_offset}"
        case lm.AppendsAcknowledged():
            appends = f"{effect.first_append}..{effect.last_append}"
            return f"acknowledged {appends} to offset {effect.end_offset}"
        case lm.LedgerRolled():
            return (
                f"rolled to {effect.ledger_id} at {effect.first_offset}, {effect.reordered} again"
            )
        case lm.ListChanged():
            return f"list ends at {effect.head.end_offset}"
        case lm.LeaderStopped():
            unknown = effect.first_unknown_append
            doubt = "" if unknown is None else f" unknown from append {unknown}"
            return f"stopped {type(effect.error).__name__} at {effect.end_offset}{doubt}"
        case _:
            return describe_request(effect)


def _number(claim: str) -> int:
    """The number of the process with this claim, counted from 1."""
    return int(claim, 16) >> 64
