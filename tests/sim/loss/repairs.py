"""Performs the effects of the repair machines for one process of a bookie."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bookie_server.core import doubt as rules
from bookie_server.core import repair as r
from bookie_server.core.requests import StoredAdd, StoredRead
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, Versioned
from ledgerlog_spark.protocol.ledger import messages as m
from tests.sim.checker import require
from tests.sim.client import as_entry
from tests.sim.late_add import KEY
from tests.sim.loss.checker import names
from tests.sim.loss.directory import Record
from tests.sim.network import Message

if TYPE_CHECKING:
    from tests.sim.loss.bookie import LossBookie

PAUSE_US = (2_000, 12_000)
"""The pause between two rounds over the ledgers that are still in limbo."""
PEER_MS = 20
LIMITS = r.RecoveryLimits(idle_ms=80, stuck_ms=60)


class Repairs:
    """Runs a pass after each loss, and then the ledgers that are still in limbo, round by round.

    Attributes:
        outcomes: The last outcome of each ledger in this process.
    """

    def __init__(self, bookie: LossBookie) -> None:
        self._bookie = bookie
        self._is_running = False
        self._wanted: dict[int, None] = {}
        self.outcomes: dict[int, r.RepairEnded] = {}
        self._quiet_since: dict[int, tuple[object, int]] = {}
        self._recoveries = 0

    def want(self, ledger_id: int) -> None:
        """Repair a ledger before others, because a client got the answer "unknown"."""
        self._wanted[ledger_id] = None

    def begin(self) -> None:
        """Repair until nothing is in limbo. Begin again after another loss."""
        if not self._is_running:
            self._is_running = True
            self._next_round()

    def _next_round(self) -> None:
        self._bookie._later(PAUSE_US, self._round)

    def _round(self) -> None:
        bookie = self._bookie
        doubt = bookie.doubt
        is_in_limbo = not doubt.is_over or bool(bookie.in_limbo)
        if is_in_limbo and not doubt.may_be_repaired:
            self._next_round()
        elif not doubt.is_over:
            self._pass()
        elif bookie.in_limbo:
            wanted = [one for one in self._wanted if one in bookie.in_limbo]
            self._wanted = {}
            self._ledgers([*wanted, *bookie.in_limbo])
        else:
            self._is_running = False

    def _ledgers(self, left: list[int]) -> None:
        if not left:
            self._next_round()
            return
        self._ledger(left[0], lambda _: self._ledgers(left[1:]))

    # The pass.

    def _pass(self) -> None:
        machine = r.RepairPass(self._bookie.doubt)
        self._perform_pass(machine, machine.begin())

    def _perform_pass(self, machine: r.RepairPass, effect: r.PassEffect) -> None:
        bookie = self._bookie
        go_on = partial(self._perform_pass, machine)
        if isinstance(effect, r.ListLedgers):

            def listed(ids: Any) -> None:
                is_whole = ids is not None
                everything = sorted({*(ids or ()), *bookie.states})
                go_on(machine.listed(everything, is_whole=is_whole))

            bookie.ask("list", self.listing, listed)
        elif isinstance(effect, r.RepairLedger):
            ledger_id = effect.ledger_id
            self._ledger(ledger_id, lambda out: go_on(machine.repaired(ledger_id, out)))
        elif isinstance(effect, r.KeepInLimbo):
            self._keep(effect.ledger_id, lambda: go_on(machine.handled()))
        elif isinstance(effect, r.EndDoubt):
            bookie.world.checkers.mark("doubt ended")
            epoch = effect.epoch
            bookie.commit(lambda doubt: doubt.ended(epoch), lambda: go_on(machine.ended()))
        else:
            self._next_round()

    def listing(self) -> list[int]:
        """Return the ids of all ledgers that exist now."""
        return sorted(self._bookie.world.store.records)

    def _keep(self, ledger_id: int, then: Callable[[], None]) -> None:
        bookie = self._bookie
        bookie._state_of(ledger_id, KEY)
        self.when_kept(self.write_state(ledger_id), then)

    def write_state(self, ledger_id: int) -> int:
        """Write the state of a ledger in limbo, and return its ticket."""
        bookie = self._bookie
        return bookie.submit(Record("state", ledger_id, epoch=bookie.cleared[ledger_id]))

    def when_kept(self, ticket: int, then: Callable[[], None]) -> None:
        """Call `then` when the state of a ledger in limbo is durable."""
        self._bookie.when_control(ticket, then)

    # One ledger.

    def _ledger(self, ledger_id: int, then: Callable[[r.RepairOutcome], None]) -> None:
        bookie = self._bookie
        has_state = ledger_id in bookie.states
        machine = r.LedgerRepair(bookie.name, bookie.doubt, has_state=has_state)
        self._perform(machine, ledger_id, machine.begin(), then)

    def _perform(
        self,
        machine: r.LedgerRepair,
        ledger_id: int,
        effects: list[r.RepairEffect],
        then: Callable[[r.RepairOutcome], None],
    ) -> None:
        bookie = self._bookie
        (effect,) = effects

        def answer(event: r.RepairEvent) -> None:
            self._perform(machine, ledger_id, machine.handle(event), then)

        if isinstance(effect, r.RepairEnded):
            self._ended(ledger_id, effect)
            then(effect.outcome)
        elif isinstance(effect, r.LoadRecord):

            def loaded(
                is_read: bool,
                record: Versioned[LedgerMetadata] | None,
                _created: int,
            ) -> None:
                answer(r.RecordLoaded(is_read, record))

            bookie.load_record(ledger_id, loaded)
        elif isinstance(effect, r.VerifyHeld):
            held = bookie.entries.get(ledger_id, {})
            ids = frozenset(one for one in effect.entry_ids if one in held)
            bookie._later((10, 100), lambda: answer(r.HeldVerified(ids)))
        elif isinstance(effect, r.FetchEntry):
            self._fetch(ledger_id, effect, answer)
        elif isinstance(effect, r.ReadPeerLac):
            self._peer_lac(ledger_id, effect.bookie_id, answer)
        elif isinstance(effect, r.StoreEntry):
            stored = effect.stored
            add = StoredAdd(
                ledger_id, (effect.entry_id,), (len(stored),), stored, KEY, is_recovery=True
            )
            bookie.world.checkers.mark("entry repaired")
            bookie.add(add, lambda code: answer(r.EntryStored(code is Code.OK)))
        else:
            self._clear(ledger_id, machine._metadata, effect, lambda: answer(r.LedgerCleared()))

    def _clear(
        self,
        ledger_id: int,
        verified: LedgerMetadata,
        effect: r.ClearLedger,
        then: Callable[[], None],
    ) -> None:
        bookie = self._bookie
        if not rules.is_in_limbo(bookie.cleared.get(ledger_id), bookie.doubt):
            then()
            return
        bookie._state_of(ledger_id, KEY)
        record = Record("cleared", ledger_id, lac=effect.last_add_confirmed, epoch=effect.epoch)
        ticket = bookie.submit(record)

        def durable() -> None:
            bookie.world.checkers.mark("ledger cleared")
            bookie.apply_cleared(record)
            self._require_whole(ledger_id, verified)
            then()

        bookie.when_control(ticket, durable)

    def _require_whole(self, ledger_id: int, verified: LedgerMetadata) -> None:
        """Check that a ledger that leaves limbo has every entry that the verified record names."""
        bookie, held = self._bookie, self._bookie.entries.get(ledger_id, {})
        if rules.is_in_limbo(bookie.cleared[ledger_id], bookie.doubt):
            return
        ids = [
            e for fragment, end in r.ends_of(verified) for e in range(fragment.first_entry_id, end)
        ]
        missing = [e for e in ids if e not in held and names(verified, bookie.name, e)]
        require(not missing, "R1", f"{bookie.name} clears {ledger_id} without {missing}")

    def _ended(self, ledger_id: int, ended: r.RepairEnded) -> None:
        bookie = self._bookie
        bookie.world.checkers.mark(f"repair {ended.outcome.name}")
        if ended != self.outcomes.get(ledger_id):
            bookie.world.note(bookie.name, f"repair of {ledger_id}: {ended}")
        self.outcomes[ledger_id] = ended
        self._perhaps_recover(ledger_id, ended)
        if ended.outcome is r.RepairOutcome.DELETED:
            for kept in (bookie.entries, bookie.states, bookie.cleared):
                kept.pop(ledger_id, None)
            bookie.submit(Record("drop", ledger_id))

    def _perhaps_recover(self, ledger_id: int, ended: r.RepairEnded) -> None:
        """Recover a ledger that keeps the bookie in limbo, if its limits allow it."""
        bookie = self._bookie
        now_us, state = bookie.world.scheduler.now_us, bookie.states.get(ledger_id)
        version = ended.record.version if ended.record is not None else None
        seen = (version, None if state is None else state.last_ticket)
        before, since_us = self._quiet_since.get(ledger_id, (None, now_us))
        if before != seen:
            since_us = now_us
        self._quiet_since[ledger_id] = (seen, since_us)
        if r.should_recover(ended, (now_us - since_us) // 1_000, LIMITS):
            self._quiet_since[ledger_id] = (seen, now_us)
            self._recoveries += 1
            bookie.world.checkers.mark("recovered by a bookie in limbo")
            name = f"{bookie.name}.{bookie.boots}.{self._recoveries}.{ledger_id}"
            bookie.world.recoverer(name, ledger_id=ledger_id).feed(m.Start())

    def _request(
        self,
        kind: str,
        peer: str,
        serve: Callable[[Callable[..., None]], bool],
        then: Callable[..., None],
        lost: tuple[Any, ...],
    ) -> None:
        """Send a request to another bookie. `then` gets the answer, or `lost`."""
        bookie = self._bookie
        network, host = bookie.world.network, bookie.host
        assert host is not None
        is_open = True

        def answered(*answer: Any) -> None:
            nonlocal is_open
            if is_open and host.is_alive:
                is_open = False
                then(*answer)

        def reply(*answer: Any) -> None:
            back = Message(f"{kind}_reply", peer, bookie.name, lambda: answered(*answer))
            network.send(back)

        def arrive() -> None:
            if not serve(reply):
                reply(*lost)

        network.send(Message(kind, bookie.name, peer, arrive))
        host.call_later(PEER_MS * 1_000, lambda: answered(*lost))

    def _fetch(
        self, ledger_id: int, effect: r.FetchEntry, answer: Callable[[r.RepairEvent], None]
    ) -> None:
        peer = self._bookie.world.bookies[effect.bookie_id]
        request = StoredRead(ledger_id, effect.entry_id)

        def fetched(code: Code, stored: bytes | None) -> None:
            is_good = stored is not None and as_entry(stored, ledger_id, effect.entry_id)
            if stored is not None and not is_good:
                code, stored = Code.DIGEST_MISMATCH, None
            answer(r.EntryFetched(code, stored))

        self._request(
            "fetch",
            effect.bookie_id,
            lambda reply: peer.read(request, reply),
            fetched,
            (Code.TIMEOUT, None),
        )

    def _peer_lac(self, ledger_id: int, peer: str, answer: Callable[[r.RepairEvent], None]) -> None:
        bookie = self._bookie.world.bookies[peer]
        self._request(
            "peer_lac",
            peer,
            lambda reply: bookie.read_lac(ledger_id, reply),
            lambda code, lac: answer(r.PeerLacRead(code, lac)),
            (Code.TIMEOUT, NO_ENTRY),
        )
