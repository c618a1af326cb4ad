"""A client process of the simulator: runs one machine and performs its effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, ReadIdentities
from tests.sim.blame import judge
from tests.sim.checker import require
from tests.sim.late_add import CODEC, KEY
from tests.sim.liveness import Liveness
from tests.sim.network import Message
from tests.sim.pauses import ReaderPauses

if TYPE_CHECKING:
    from tests.sim.world import World


def as_entry(stored: bytes, ledger_id: int, entry_id: int) -> m.StoredEntry | None:
    """Return the verified entry, or None if the bytes are not this entry."""
    try:
        entry = CODEC.decode(stored, ledger_id, entry_id)
    except WireFormatError:
        return None
    return m.StoredEntry(entry.entry_id, entry.last_add_confirmed, entry.length, entry.payload)


REFUSED: dict[type, Callable[[int], Any]] = {
    m.SendAdd: lambda number: m.AddReplied(number, Code.UNAVAILABLE),
    m.SendRead: lambda number: m.ReadReplied(number, Code.UNAVAILABLE, None),
    m.SendReadBatch: lambda number: m.BatchReplied(number, Code.UNAVAILABLE, ()),
    m.SendReadLac: lambda number: m.LacReplied(number, Code.UNAVAILABLE),
}
"""The answers to requests whose connection breaks, or whose bookie is down."""


class SimClient:
    """Runs one machine. Each request gets exactly one reply, which may be its time-out.

    Attributes:
        address: Network address of its process, which may run several machines.
        began_us: Time at which it was created.
        waits_for_application: Whether the application has not yet taken what it delivered.
        is_alive: False for a dead client, which sends and receives nothing.
        is_frozen: Whether its process is paused: events wait, but time passes.
        may_ask_bookies: False for a client without the ledger's password.
        ended: The last indication; None while it runs.
    """

    def __init__(
        self, world: World, name: str, machine: Any, ledger_id: int, address: str = ""
    ) -> None:
        self.world = world
        self.name = name
        self.address = address or name
        self.began_us = world.scheduler.now_us
        self.machine = machine
        self.ledger_id = ledger_id
        self.is_alive = True
        self.is_frozen = False
        self.may_ask_bookies = True
        self.waits_for_application = False
        self.ended: m.Indication | None = None
        self.on_indication: Callable[[Any], None] = lambda _: None
        self._open: dict[int, Any] = {}
        self._events: deque[Any] = deque()
        self._is_handling = False
        self._liveness = Liveness()
        self._pauses = ReaderPauses(name)
        self._perform: dict[type, Callable[[Any], None]] = {
            m.SendAdd: self._send_add,
            m.SendRead: self._send_read,
            m.SendReadBatch: self._send_read_batch,
            m.SendReadLac: self._send_read_lac,
            m.LoadMetadata: self._load,
            m.CasMetadata: self._cas,
            m.ListBookies: self._list,
            ReadIdentities: self._read_identities,
            m.StartTimer: self._timer,
        }

    @property
    def entries_asked(self) -> int:
        """Number of entries in runs with an unanswered add, without adds to replaced bookies."""
        awaited = self.machine._pipeline._sent
        adds = [one for number, one in self._open.items() if number in awaited]
        runs = {one.run.first_entry_id: one.run for one in adds}
        return sum(run.entries for run in runs.values())

    def feed(self, event: Any) -> None:
        """Give the machine an event. Its effects are performed after `handle` has returned."""
        self._events.append(event)
        self._drain()

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        self._drain()

    def _drain(self) -> None:
        if self._is_handling or self.is_frozen:
            return
        self._is_handling = True
        try:
            while self._events and self.is_alive:
                self._handle(self._events.popleft())
        finally:
            self._is_handling = False

    def _handle(self, event: Any) -> None:
        checker = self.world.checkers
        effects = checker.around_handle(self, event)
        self._pauses.check(self.machine, effects)
        for effect in effects:
            perform = self._perform.get(type(effect))
            if perform is not None:
                self._open[effect.request] = effect
                perform(effect)
                continue
            self.world.note(self.name, effect)
            checker.indicated(self, effect)
            judge(self, event, effect, checker.of(self.ledger_id), self.world.faults)
            if isinstance(
                effect, m.LedgerClosed | m.LedgerFailed | m.RangeRead | m.ReadFailed | m.LacRead
            ):
                self.ended = effect
            self.on_indication(effect)
        is_watched = not self._events and not self.waits_for_application
        if is_watched and self.ended is None and self.is_alive:
            require(
                not self._liveness.stands_still(self.machine, event, self._open.values()),
                "V2",
                f"{self.name} stands still in {self.machine.phase.name}: nothing it asked for is "
                "open, and it has not ended",
            )

    def crash(self) -> None:
        self.is_alive = False

    def reset(self, bookie_id: str) -> int:
        """Break the connection to a bookie: its open requests get the answer UNAVAILABLE."""
        lost = [one for one in self._open.values() if getattr(one, "bookie_id", "") == bookie_id]
        for effect in lost:
            self._answer(REFUSED[type(effect)](effect.request))
        return len(lost)

    def _answer(self, event: Any) -> None:
        """Pass on the first answer to a request. Drop later answers."""
        if self.is_alive and self._open.pop(event.request, None) is not None:
            self.feed(event)

    def _deadline(self, event: Any) -> None:
        self.world.scheduler.call_later(
            self.world.options.rpc_timeout_ms * 1_000, lambda: self._answer(event)
        )

    def _bookie_rpc(
        self,
        kind: str,
        effect: Any,
        *,
        serve: Callable[[Callable[..., None]], bool],
        reply: Callable[..., Any],
        lost: Any,
        entry_id: int | None,
        fence: bool = False,
        is_recovery: bool = False,
    ) -> None:
        network, bookie_id = self.world.network, effect.bookie_id
        require(self.may_ask_bookies, "L40", f"{self.name} has no password and asks {bookie_id}")

        def respond(event: Any) -> None:
            network.send(
                Message(
                    f"{kind}_reply",
                    bookie_id,
                    self.address,
                    lambda: self._answer(event),
                    entry_id,
                    fence,
                    is_recovery,
                )
            )

        def arrive() -> None:
            if not serve(lambda *answer: respond(reply(*answer))):
                respond(REFUSED[type(effect)](effect.request))

        network.send(Message(kind, self.address, bookie_id, arrive, entry_id, fence, is_recovery))
        self._deadline(lost)

    def _is_garbled(self, request: int) -> bool:
        """Whether the network changes the bytes of an answer, so that the digest is wrong."""
        world = self.world
        return world.faults.happens(world.options.garble_rate, "garble", self.name, request)

    def _send_add(self, effect: m.SendAdd) -> None:
        run = effect.run
        if run.attachment is None:
            run.attachment = [
                header + bytes(payload)
                for header, payload in CODEC.encode_run(
                    ledger_id=run.ledger_id,
                    first_entry_id=run.first_entry_id,
                    last_add_confirmed=run.last_add_confirmed,
                    length=run.length_before,
                    payloads=run.payloads,
                )
            ]
        stored: list[bytes] = run.attachment
        ids: range | tuple[int, ...] = range(run.first_entry_id, run.last_entry_id + 1)
        if effect.entry_ids is not None:
            ids = effect.entry_ids
            stored = [stored[entry_id - run.first_entry_id] for entry_id in ids]
        request = StoredAdd(
            run.ledger_id,
            ids,
            tuple(map(len, stored)),
            b"".join(stored),
            KEY,
            effect.is_recovery,
        )
        self.world.checkers.add_sent(self, effect)
        bookie = self.world.bookies[effect.bookie_id]
        self._bookie_rpc(
            "add",
            effect,
            serve=lambda answer: bookie.add(request, answer),
            reply=lambda code: m.AddReplied(effect.request, code),
            lost=m.AddReplied(effect.request, Code.TIMEOUT),
            entry_id=run.first_entry_id,
            is_recovery=effect.is_recovery,
        )

    def _send_read(self, effect: m.SendRead) -> None:
        request = StoredRead(
            self.ledger_id,
            effect.entry_id,
            KEY if effect.fence else None,
            effect.is_recovery,
        )
        bookie = self.world.bookies[effect.bookie_id]
        faults, rate = self.world.faults, self.world.options.refused_read_rate

        def serve(answer: Callable[..., None]) -> bool:
            is_of_reader = not effect.fence
            if is_of_reader and faults.happens(rate, "refused", self.name, effect.request):
                answer(Code.BUSY, None)
                return bookie.is_up
            return bookie.read(request, answer)

        def reply(code: Code, stored: bytes | None) -> m.ReadReplied:
            entry = None
            if stored is not None:
                if not self._is_garbled(effect.request):
                    entry = as_entry(stored, self.ledger_id, effect.entry_id)
                code = code if entry is not None else Code.DIGEST_MISMATCH
            return m.ReadReplied(effect.request, code, entry)

        self._bookie_rpc(
            "read",
            effect,
            serve=serve,
            reply=reply,
            lost=m.ReadReplied(effect.request, Code.TIMEOUT, None),
            entry_id=effect.entry_id,
            fence=effect.fence,
        )

    def _send_read_batch(self, effect: m.SendReadBatch) -> None:
        request = StoredBatchRead(
            self.ledger_id, effect.first_entry_id, effect.count_max, effect.size_bytes_max
        )
        bookie = self.world.bookies[effect.bookie_id]

        def reply(code: Code, stored: Sequence[bytes]) -> m.BatchReplied:
            entries: list[m.StoredEntry] = []
            for one in () if stored and self._is_garbled(effect.request) else stored:
                entry = as_entry(one, self.ledger_id, effect.first_entry_id + len(entries))
                if entry is None:
                    break
                entries.append(entry)
            if stored and not entries:
                code = Code.DIGEST_MISMATCH
            return m.BatchReplied(effect.request, code, tuple(entries))

        self._bookie_rpc(
            "read_batch",
            effect,
            serve=lambda answer: bookie.read_batch(request, answer),
            reply=reply,
            lost=m.BatchReplied(effect.request, Code.TIMEOUT, ()),
            entry_id=effect.first_entry_id,
        )

    def _send_read_lac(self, effect: m.SendReadLac) -> None:
        bookie = self.world.bookies[effect.bookie_id]

        def reply(code: Code, lac: int) -> m.LacReplied:
            return m.LacReplied(effect.request, code, lac)

        self._bookie_rpc(
            "read_lac",
            effect,
            serve=lambda answer: bookie.read_lac(self.ledger_id, answer),
            reply=reply,
            lost=m.LacReplied(effect.request, Code.TIMEOUT),
            entry_id=None,
        )

    def _load(self, effect: m.LoadMetadata) -> None:
        world, ledger_id = self.world, self.ledger_id
        number = effect.request
        if world.faults.happens(world.options.store_away_rate, "away", "load", self.name, number):
            gone = m.MetadataLoaded(number, m.MetadataOutcome.UNAVAILABLE)
            world.scheduler.call_later(2_000, lambda: self._answer(gone))
            return

        def arrive() -> None:
            loaded = world.store.load(
                ledger_id, is_synced=effect.sync_first, name=f"{self.name} {number}"
            )
            outcome = m.MetadataOutcome.OK if loaded is not None else m.MetadataOutcome.GONE
            rate = world.options.unreadable_rate
            if loaded and world.faults.happens(rate, "unreadable", self.name, number):
                outcome, loaded = m.MetadataOutcome.UNREADABLE, None
            event = m.MetadataLoaded(number, outcome, loaded)
            world.network.send(
                Message("load_reply", "zk", self.address, lambda: self._answer(event))
            )

        world.network.send(Message("load", self.address, "zk", arrive))
        self._deadline(m.MetadataLoaded(number, m.MetadataOutcome.UNAVAILABLE))

    def _cas(self, effect: m.CasMetadata) -> None:
        world, number = self.world, effect.request
        options, faults = world.options, world.faults
        if faults.happens(options.store_away_rate, "away", "cas", self.name, number):
            away = m.MetadataWritten(number, m.MetadataOutcome.UNAVAILABLE)
            world.scheduler.call_later(2_000, lambda: self._answer(away))
            return

        def apply() -> m.MetadataWritten:
            outcome, written = world.store.replace(
                self.name, self.ledger_id, effect.metadata, effect.version, effect.identities
            )
            return m.MetadataWritten(number, outcome, written)

        def arrive() -> None:
            event = apply()
            if faults.happens(options.cas_lost_rate, "cas reply lost", self.name, number):
                return
            world.network.send(
                Message("cas_reply", "zk", self.address, lambda: self._answer(event))
            )

        self._deadline(m.MetadataWritten(number, m.MetadataOutcome.UNKNOWN))
        if faults.happens(options.cas_late_rate, "cas late", self.name, number):
            # The write of a dead session is applied long after the sender stopped waiting for it.
            late = 3_000 * options.rpc_timeout_ms * faults.draws.uniform("late", self.name, number)
            world.scheduler.call_later(int(late), partial(_unheard, apply))
            return
        world.network.send(Message("cas", self.address, "zk", arrive))

    def _list(self, effect: m.ListBookies) -> None:
        world = self.world
        up = [name for name, bookie in world.bookies.items() if bookie.is_registered]
        shuffled = world.candidates(self.name, effect.request, up)
        event = m.BookiesListed(effect.request, shuffled)
        world.scheduler.call_later(1_000, lambda: self._answer(event))

    def _read_identities(self, effect: ReadIdentities) -> None:
        world, number = self.world, effect.request
        lost = IdentitiesRead(number, None)
        rate = world.options.store_away_rate
        if world.faults.happens(rate, "away", "identities", self.name, number):
            world.scheduler.call_later(2_000, lambda: self._answer(lost))
            return

        def arrive() -> None:
            event = IdentitiesRead(number, world.store.identities_of(effect.bookie_ids))
            reply = Message("identities_reply", "zk", self.address, lambda: self._answer(event))
            world.network.send(reply)

        world.network.send(Message("identities", self.address, "zk", arrive))
        self._deadline(lost)

    def _timer(self, effect: m.StartTimer) -> None:
        event = m.TimerFired(effect.request)
        self.world.scheduler.call_later(effect.delay_ms * 1_000, lambda: self._answer(event))


def _unheard(apply: Callable[[], object]) -> None:
    apply()
