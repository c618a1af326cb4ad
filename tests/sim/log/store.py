"""A store of one log with late, lost and old answers, which checks the log at every change.

A write or its reply may be lost. A write may also be *delayed*: the sender gets the outcome
"unknown", its session is dead, and the write is still carried out much later. A read may return any
state that is not older than the newest state that its session has seen. After `Sync`, reads return
the newest state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome as Outcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.state.codec import decode_head, decode_page, encode_head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from ledgerlog_spark.protocol.log.state.records import LogHead, ProducerRecord


@dataclass(frozen=True)
class Register:
    """Create and register a ledger under a version of a producer record. The reply is Written."""

    request: int
    app: str
    version: Version
    ledger_id: int


@dataclass(frozen=True)
class State:
    """The whole state of the store. A state is replaced, and never changed."""

    head: Versioned[LogHead]
    producers: dict[str, Versioned[ProducerRecord]] = field(default_factory=dict)
    registered: dict[str, dict[int, int]] = field(default_factory=dict)
    pages: dict[str, tuple[int, dict[int, bytes]]] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)


@dataclass
class Session:
    """The newest state that one client has seen. It never reads an older state."""

    seen: int = 0
    is_slow: bool = False
    """Whether its requests sometimes take long."""
    is_crossed: bool = False
    """Whether another change of the head comes just before each of its changes."""


SLOW_MS_MAX = 250


READS = (
    m.ReadHead,
    m.ReadProducer,
    m.ReadRegistered,
    m.ReadPages,
    m.ReadStaged,
    m.ReadRegistrations,
    m.ReadPassword,
)


class SimStore:
    """Carries out requests in virtual time.

    Args:
        later: Calls a function after a number of ms.
        on_change: Called with (old, new) after each change of the state.
        drop: Seals and deletes a ledger; returns False if it could not be sealed.
        pages: The pages that the first head names.
        password_of: Returns the password of a ledger; None if it has no metadata.

    Attributes:
        unanswered: Requests whose client died before the reply.
    """

    def __init__(
        self,
        head: LogHead,
        random: Random,
        later: Callable[[int, Callable[[], None]], None],
        now_ms: Callable[[], int],
        on_change: Callable[[Any, State, State], None],
        drop: Callable[[int], bool],
        *,
        pages: Sequence[bytes] = (),
        password_of: Callable[[int], bytes | None] = lambda _: None,
    ) -> None:
        made = {head.token: (0, dict(enumerate(pages)))} if pages else {}
        self.states = [State(Versioned(head, Version(1, 0)), pages=made)]
        self.password_of = password_of
        self.unanswered = 0
        self.tokens: set[str] = set()
        self.sent: dict[str, m.WriteHead] = {}
        self.random = random
        self.later = later
        self.now_ms = now_ms
        self.on_change = on_change
        self.drop = drop
        self.faulty = True
        self.events = 0
        self.faults = 0

    @property
    def state(self) -> State:
        return self.states[-1]

    def submit(self, session: Session, request: Any, reply: Callable[[Any], None]) -> None:
        self.events += 1
        delay = self.random.randint(1, 15)
        if session.is_slow:
            delay += self.random.randint(0, SLOW_MS_MAX)
        if isinstance(request, m.WritePages):
            assert request.token not in self.tokens, f"token {request.token} names two attempts"
            self.tokens.add(request.token)
        if isinstance(request, m.WriteHead):
            sent = self.sent.setdefault(request.token, replace(request, request=0))
            assert sent == replace(request, request=0), f"token {request.token} names two changes"
        if isinstance(request, m.Sync):
            self.later(delay, lambda: self._sync(session, request, reply))
        elif isinstance(request, READS):
            self.later(delay, lambda: self._read(session, request, reply))
        else:
            self._write(session, request, reply, delay)

    def _sync(self, session: Session, request: m.Sync, reply: Callable[[Any], None]) -> None:
        if self._fails(0.02):
            reply(m.Synced(request.request, Outcome.UNAVAILABLE))
            return
        session.seen = len(self.states) - 1
        reply(m.Synced(request.request, Outcome.OK))

    def _read(self, session: Session, request: Any, reply: Callable[[Any], None]) -> None:
        if self._fails(0.02):
            outcomes = (Outcome.UNAVAILABLE, Outcome.UNAVAILABLE, Outcome.UNREADABLE)
            reply(self.answer(request, self.random.choice(outcomes)))
            return
        newest = len(self.states) - 1
        stale = self._fails(0.3)
        session.seen = self.random.randint(session.seen, newest) if stale else newest
        reply(self._look(request, self.states[session.seen]))

    def _write(
        self, session: Session, request: Any, reply: Callable[[Any], None], delay: int
    ) -> None:
        unknown = self.answer(request, Outcome.UNKNOWN)
        fate = self.random.random() if self.faulty else 1.0
        if fate < 0.15:
            self.faults += 1
        if fate < 0.04:
            self.later(delay, lambda: reply(unknown))
        elif fate < 0.09:
            self.later(delay, self._never_answer)
        elif fate < 0.15:
            self.later(delay, lambda: reply(unknown))
            late = self.random.choice((20, 100, 400))
            self.later(delay + self.random.randint(1, late), lambda: self._apply(request) and None)
        else:
            self.later(delay, lambda: self._written(session, request, reply))

    def _never_answer(self) -> None:
        self.unanswered += 1

    def _written(self, session: Session, request: Any, reply: Callable[[Any], None]) -> None:
        if session.is_crossed and self.faulty and isinstance(request, m.WriteHead):
            head = self.state.head
            crossed = replace(self.state, head=Versioned(head.value, _next(head.version)))
            self.states.append(crossed)
        answer = self._apply(request)
        session.seen = len(self.states) - 1
        self.later(self.random.randint(1, 5), lambda: reply(answer))

    def _fails(self, probability: float) -> bool:
        failed = self.faulty and self.random.random() < probability
        self.faults += failed
        return failed

    @staticmethod
    def answer(request: Any, outcome: Outcome, version: Version | None = None) -> Any:
        kinds: dict[type[Any], type[Any]] = {
            m.Sync: m.Synced,
            m.ReadHead: m.HeadRead,
            m.ReadProducer: m.ProducerRead,
            m.ReadRegistered: m.RegisteredRead,
            m.ReadPages: m.PagesRead,
            m.ReadStaged: m.StagedRead,
            m.ReadRegistrations: m.RegistrationsRead,
            m.ReadPassword: m.PasswordRead,
            m.WritePages: m.PagesWritten,
        }
        kind = kinds.get(type(request), m.Written)
        if kind in {m.Written, m.PagesWritten}:
            return kind(request.request, outcome, version)
        return kind(request.request, outcome)

    def _time(self, needed: m.TimeNeeded) -> int:
        """Return the time of the store, or of the store's last answer if this is enough."""
        # Another server than before may give the time, and its clock may be behind.
        skew_ms = self.random.choice((0, 0, 0, 60)) if self.faulty else 0
        behind_ms = {
            m.TimeNeeded.EXACT: skew_ms,
            m.TimeNeeded.RECENT: skew_ms + self.now_ms() % 16,
        }
        return self.now_ms() - behind_ms[needed] if needed in behind_ms else 0

    def _look(self, request: Any, state: State) -> Any:  # noqa: PLR0911
        number = request.request
        match request:
            case m.ReadHead():
                return m.HeadRead(number, Outcome.OK, state.head, self._time(request.time))
            case m.ReadProducer():
                found = state.producers.get(request.app)
                outcome = Outcome.OK if found else Outcome.GONE
                return m.ProducerRead(number, outcome, found, self._time(request.time))
            case m.ReadRegistered():
                ids = tuple(sorted(state.registered.get(request.app, {})))
                return m.RegisteredRead(number, Outcome.OK, ids)
            case m.ReadStaged():
                staged_ms = dict(sorted(state.registered.get(request.app, {}).items()))
                return m.StagedRead(number, Outcome.OK, staged_ms, self.now_ms())
            case m.ReadRegistrations():
                found_at = []
                for app in sorted(state.producers):
                    ids = tuple(i for i in request.ledger_ids if i in state.registered.get(app, {}))
                    if ids:
                        found_at.append((app, state.producers[app], ids))
                return m.RegistrationsRead(number, Outcome.OK, tuple(found_at))
            case m.ReadPassword():
                password = self.password_of(request.ledger_id)
                gone = m.PasswordRead(number, Outcome.GONE)
                return gone if password is None else m.PasswordRead(number, Outcome.OK, password)
        read = []
        for page in request.pages:
            data = state.pages.get(page.ref.token, (0, {}))[1].get(page.ref.number)
            if data is None:
                return m.PagesRead(number, Outcome.GONE)
            read.append(decode_page(page.kind, data))
        return m.PagesRead(number, Outcome.OK, tuple(read))

    def _apply(self, request: Any) -> Any:
        old = self.state
        new, version = self._carry_out(request, old)
        if new is None:
            return self.answer(request, Outcome.CONFLICT)
        self.states.append(new)
        self.on_change(request, old, new)
        return self.answer(request, Outcome.OK, version)

    def _carry_out(  # noqa: PLR0911
        self, request: Any, at: State
    ) -> tuple[State | None, Version | None]:
        match request:
            case m.WriteHead():
                return self._write_head(request, at)
            case m.WriteProducer():
                return self._write_producer(request, at)
            case m.WritePages():
                if request.token in at.pages:
                    return None, None
                pages = at.pages | {request.token: (0, dict(enumerate(request.pages)))}
                return replace(at, pages=pages), Version(1, 0)
            case m.TouchPages():
                if request.token not in at.pages:
                    return None, None
                number, held = at.pages[request.token]
                return replace(at, pages=at.pages | {request.token: (number + 1, held)}), None
            case m.DeletePages():
                number, held = at.pages.get(request.token, (0, {}))
                kept = {n: page for n, page in held.items() if n in request.kept}
                others = {t: p for t, p in at.pages.items() if t != request.token}
                return replace(
                    at, pages=others | ({request.token: (number, kept)} if kept else {})
                ), None
            case m.DropLedger():
                if (
                    request.marked_ms is not None
                    and at.marks.get(request.ledger_id) != request.marked_ms
                ):
                    return None, None
                if not self.drop(request.ledger_id):
                    return None, None
                return self._without_mark(at, request.ledger_id), None
            case Register():
                producer = at.producers.get(request.app)
                if producer is None or producer.version != request.version:
                    return None, None
                ledgers = at.registered.get(request.app, {}) | {request.ledger_id: self.now_ms()}
                return replace(at, registered=at.registered | {request.app: ledgers}), None
        raise AssertionError(request)

    @staticmethod
    def _without_mark(at: State, ledger_id: int) -> State:
        return replace(at, marks={i: t for i, t in at.marks.items() if i != ledger_id})

    def _write_head(self, request: m.WriteHead, at: State) -> tuple[State | None, Version | None]:
        if at.head.version != request.head_version:
            return None, None
        producers = at.producers
        if request.app is not None:
            found = producers.get(request.app)
            if found is None or found.version != request.producer_version:
                return None, None
            assert request.producer is not None
            producers = producers | {request.app: Versioned(request.producer, _next(found.version))}
        if request.pages_version is not None:
            number, _ = at.pages.get(request.token, (-1, {}))
            if number != request.pages_version.number:
                return None, None
        head = Versioned(decode_head(encode_head(request.head)), _next(at.head.version))
        marks = at.marks | dict.fromkeys(request.unlisted, self.now_ms())
        return replace(at, head=head, producers=producers, marks=marks), head.version

    def _write_producer(
        self, request: m.WriteProducer, at: State
    ) -> tuple[State | None, Version | None]:
        found = at.producers.get(request.app)
        if (found.version if found else None) != request.version:
            return None, None
        ledgers = at.registered.get(request.app, {})
        ended = (*request.deregistered, *request.released)
        if any(ledger_id not in ledgers for ledger_id in ended):
            return None, None
        version = _next(found.version) if found else Version(1, 0)
        left = {i: t for i, t in ledgers.items() if i not in ended}
        marks = dict.fromkeys(request.deregistered, self.now_ms()) | at.marks
        state = replace(
            at,
            producers=at.producers | {request.app: Versioned(request.producer, version)},
            registered=at.registered | {request.app: left},
            marks=marks,
        )
        return state, version


def _next(version: Version) -> Version:
    return replace(version, number=version.number + 1)
