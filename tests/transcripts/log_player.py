"""Stories of a transactional log: commits and query runs, and the records in the store.

app etl r1                     producer etl exists, and its last run is r1
staged etl 7 8                 etl has registered ledgers 7 and 8
c commit etl/r1 batch=3 ledgers=7,8       a commit of one range of 100 rows for each ledger
c commit etl/r1 batch=3 ledgers=7 expects=1   the same, on version 1 alone
t join etl/r2 batch=4          a query run that begins to write for the producer
c ok                           the store carries out the open request, and answers
c ok until write head          ... and so on, until a request begins with these words
c reply lost                   the store carries it out, and the answer is lost
c request lost                 the store does not carry it out, and no answer arrives
c late                         the lost request arrives at the store late; no answer is sent
c conflict|gone|unavailable    the store's answer
"""

from __future__ import annotations

from typing import Any

from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine, JobKind, Joined
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.commit.result import CommitResult
from ledgerlog_spark.protocol.log.machine import LogMachine
from tests.unit.log.log_values import OneLog, staged, token

STEPS_MAX = 100


class LogPlayer:
    """The state of one story."""

    def __init__(self) -> None:
        self.log = OneLog()
        self.machines: dict[str, LogMachine[Any]] = {}
        self.open: dict[str, Any] = {}
        self.lost: dict[str, Any] = {}
        self.output: list[str] = []

    def run(self, command: str) -> list[str]:
        """Return the effects of one command, as lines."""
        self.output = []
        name, verb, *arguments = command.split()
        if name == "app":
            self.log.producer(verb, *arguments)
        elif name == "staged":
            self.log.register(verb, *map(int, arguments))
        elif verb == "commit":
            self._start(name, self._commit(*arguments))
        elif verb == "join":
            self._start(name, self._join(*arguments))
        else:
            self._go_on(name, verb, " ".join(arguments))
        return self.output

    def _commit(self, whose: str, *arguments: str) -> CommitMachine:
        app, run = whose.split("/")
        options = dict(argument.split("=") for argument in arguments)
        ranges = tuple(staged(int(ledger)) for ledger in options["ledgers"].split(","))
        expected = options.get("expects")
        request = CommitRequest(
            app,
            run,
            int(options["batch"]),
            ranges,
            expected_version=None if expected is None else int(expected),
        )
        return CommitMachine("flights", request, token=self._token())

    def _join(self, whose: str, batch: str) -> EpochMachine:
        app, run = whose.split("/")
        batch_id = int(batch.removeprefix("batch="))
        return EpochMachine("flights", app=app, run=run, batch_id=batch_id, kind=JobKind.STREAM)

    def _token(self) -> str:
        """The tokens of one machine continue from this token."""
        return token(0xA0 + 0x10 * len(self.machines))

    def _start(self, name: str, machine: LogMachine[Any]) -> None:
        self.machines[name] = machine
        self._take(name, machine.start())

    def _go_on(self, name: str, verb: str, rest: str) -> None:
        if verb == "late":
            self._perform(self.lost.pop(name))
        elif verb == "ok" and rest:
            for _ in range(STEPS_MAX):
                if describe(self.open[name]).startswith(rest.removeprefix("until ")):
                    return
                self._answer(name, self._perform(self.open[name]))
            raise AssertionError(f"no request begins with {rest!r}")
        elif verb == "ok":
            self._answer(name, self._perform(self.open[name]))
        elif verb == "reply":
            self._perform(self.open[name])
            self._answer(name, self._of(name, MetadataOutcome.UNKNOWN))
        elif verb == "request":
            self.lost[name] = self.open[name]
            self._answer(name, self._of(name, MetadataOutcome.UNKNOWN))
        else:
            self._answer(name, self._of(name, MetadataOutcome(verb)))

    def _of(self, name: str, outcome: MetadataOutcome) -> m.Written:
        ask = self.open[name]
        assert isinstance(ask, m.WriteHead | m.WriteProducer), ask
        return m.Written(ask.request, outcome)

    def _perform(self, ask: Any) -> Any:
        if isinstance(ask, m.WriteHead):
            app = ask.app or ""
            of_producer = self.log.producers[app].version if app else None
            if (ask.head_version, ask.producer_version) != (self.log.head.version, of_producer):
                return m.Written(ask.request, MetadataOutcome.CONFLICT)
        elif isinstance(ask, m.WriteProducer):
            found = self.log.producers.get(ask.app)
            if (found.version if found else None) != ask.version:
                return m.Written(ask.request, MetadataOutcome.CONFLICT)
        return self.log.reply(ask)

    def _answer(self, name: str, reply: Any) -> None:
        self._take(name, self.machines[name].handle(reply))

    def _take(self, name: str, effects: list[Any]) -> None:
        (self.open[name],) = effects
        several = f"{name}: " if len(self.machines) > 1 else ""
        self.output += [several + describe(effect) for effect in effects]


def short(found: str) -> str:
    """The last digits of a token, as stories write them."""
    return found[-2:]


def describe(effect: Any) -> str:  # noqa: PLR0911 - one line for each effect
    """An effect on one line."""
    match effect:
        case m.Sync():
            return "sync"
        case m.ReadHead():
            return "read head"
        case m.ReadProducer():
            return f"read producer {effect.app}"
        case m.ReadRegistered():
            return f"read registered {effect.app}"
        case m.WritePages():
            return f"write {len(effect.pages)} pages of {short(effect.token)}"
        case m.WriteHead():
            return _written_head(effect)
        case m.WriteProducer():
            record = effect.producer
            at = "new" if effect.version is None else f"v{effect.version.number}"
            return f"write producer {effect.app} {at} epoch={record.epoch} run={record.current_run}"
        case m.Finished(result):
            return f"finished {_result(result)}"
        case m.Failed(error):
            sure = "definite" if error.definite else "not definite"
            return f"failed {type(error).__name__} {sure}"
        case _:
            return repr(effect)


def _written_head(ask: m.WriteHead) -> str:
    head = ask.head
    assert ask.head_version is not None
    text = (
        f"write head v{ask.head_version.number} version={head.version} "
        f"end={head.end_offset} token={short(head.token)}"
    )
    if ask.producer is None or ask.producer_version is None:
        return text
    batch = ask.producer.last_batch_id
    return f"{text} and producer {ask.app} v{ask.producer_version.number} batch={batch}"


def _result(result: Any) -> str:
    match result:
        case CommitResult(status, None, None):
            return status.name
        case CommitResult(status, version, end_offset):
            return f"{status.name} version={version} end={end_offset}"
        case Joined():
            took = "took over" if result.took_over else "found itself"
            return f"{took} epoch={result.epoch} last batch={result.last_batch_id}"
        case _:
            return repr(result)
