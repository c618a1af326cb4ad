"""Replacements of a recovery that lose their entries before the close (PROTOCOL.md#C25)."""

from __future__ import annotations

from ledgerlog_spark.model import Code, LedgerState
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, Identity, ReadIdentities
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery
from tests.fixtures.kinds import of, only
from tests.unit.protocol.test_recovery import OPEN, Cluster, holding, recovery

REQUESTS_MAX = 200


class Dying(Cluster):
    """A cluster with entry 0, whose b1 and b2 are dead. A recovery needs b3 or b4."""

    def __init__(self) -> None:
        super().__init__(OPEN, holding(0))
        self.candidates = ("b3", "b4")
        self.requests: list[m.Effect] = []
        self.add_code = lambda send: Code.TIMEOUT if send.bookie_id in ("b1", "b2") else Code.OK
        self.can_identify = True

    def reply(self, effect: m.Effect) -> m.Event:
        self.requests.append(effect)
        assert len(self.requests) < REQUESTS_MAX, "the recovery does not end"
        answer = super().reply(effect)
        if isinstance(answer, IdentitiesRead) and not self.can_identify:
            return IdentitiesRead(answer.request, None)
        return answer

    @property
    def closes(self) -> list[m.CasMetadata]:
        writes = of(m.CasMetadata, self.requests)
        return [one for one in writes if one.metadata.is_closed]

    def got_adds(self) -> set[str]:
        return {one.bookie_id for one in self.adds}


def test_the_close_depends_on_the_identities_of_the_replacements() -> None:
    cluster = Dying()
    end = cluster.run(recovery())
    assert isinstance(end, m.LedgerClosed)
    (close,) = cluster.closes
    assert set(close.identities) == {Identity("b3", 0), Identity("b4", 0)}
    kinds = [type(one) for one in cluster.requests if isinstance(one, ReadIdentities | m.SendAdd)]
    assert kinds == [m.SendAdd] * 3 + [ReadIdentities] + [m.SendAdd] * 2


def test_a_replacement_that_has_changed_gets_the_entries_again() -> None:
    cluster = Dying()

    def wipe_once() -> None:
        cluster.tokens["b3"] = min(len(cluster.closes), 1)

    cluster.before_write = wipe_once
    one = recovery()
    assert isinstance(cluster.run(one), m.LedgerClosed)
    assert one.attempts == 2
    first, second = (close.identities for close in cluster.closes)
    assert Identity("b3", 0) in first
    assert Identity("b3", 1) in second
    assert [one.bookie_id for one in cluster.adds].count("b3") == 2


def test_a_bookie_that_changes_before_each_close_ends_the_recovery() -> None:
    cluster = Dying()

    def wipe() -> None:
        cluster.tokens["b3"] = len(cluster.closes)

    cluster.before_write = wipe
    one = recovery()
    end = cluster.run(one)
    assert isinstance(end, m.LedgerFailed)
    assert (end.failure, end.is_retriable) == (m.Failure.BOOKIE_CHANGED, True)
    assert set(end.bookie_ids) == {"b3", "b4"}
    assert one.attempts == 2
    assert cluster.stored.value.state is LedgerState.IN_RECOVERY


def test_a_bookie_without_a_cookie_is_not_used() -> None:
    cluster = Dying()
    cluster.candidates = ("b3", "b4", "b5")
    cluster.tokens["b3"] = None
    end = cluster.run(recovery())
    assert isinstance(end, m.LedgerClosed)
    assert set(end.versioned.value.last_fragment.ensemble) == {"b0", "b4", "b5"}
    assert "b3" not in cluster.got_adds()


def test_an_attempt_ends_when_no_bookie_has_a_cookie() -> None:
    cluster = Dying()
    cluster.tokens = dict.fromkeys(cluster.candidates)
    one = recovery()
    end = cluster.run(one)
    assert isinstance(end, m.LedgerFailed)
    assert end.failure is m.Failure.NOT_ENOUGH_BOOKIES
    assert one.attempts == 2
    assert len(of(ReadIdentities, cluster.requests)) <= 2 * 3 * len(cluster.candidates)
    assert cluster.got_adds() == {"b0", "b1", "b2"}


def test_nothing_is_replaced_if_the_store_does_not_answer() -> None:
    cluster = Dying()
    cluster.can_identify = False
    one = recovery()
    end = cluster.run(one)
    assert isinstance(end, m.LedgerFailed)
    assert end.failure is m.Failure.NOT_ENOUGH_BOOKIES
    assert len(of(ReadIdentities, cluster.requests)) == one.attempts == 2
    assert cluster.got_adds() == {"b0", "b1", "b2"}


class Steps:
    """A recovery of entry 0 whose adds, lists and reads of identities wait for the test."""

    def __init__(self, *candidates: str, is_end_known: bool = True) -> None:
        self.machine: LedgerRecovery = recovery()
        self.cluster = Dying()
        self.cluster.candidates = candidates
        self.is_end_known = is_end_known
        self.waiting: list[m.Effect] = []
        self.end: list[m.Effect] = []
        self._take(self.machine.handle(m.Start()))

    def _take(self, effects: list[m.Effect]) -> None:
        for one in effects:
            is_of_end = isinstance(one, m.SendRead) and one.entry_id == 1
            if isinstance(one, m.LedgerClosed | m.LedgerFailed):
                self.end.append(one)
            elif isinstance(one, m.SendAdd | m.ListBookies | ReadIdentities) or (
                is_of_end and not self.is_end_known
            ):
                self.waiting.append(one)
            elif not isinstance(one, m.StartTimer | m.HolesLeft):
                self._take(self.machine.handle(self.cluster.reply(one)))

    def add(self, bookie_id: str, code: Code = Code.OK) -> None:
        """Answer the pending add of a bookie."""
        one = only(m.SendAdd, (e for e in of(m.SendAdd, self.waiting) if e.bookie_id == bookie_id))
        self.waiting.remove(one)
        self._take(self.machine.handle(m.AddReplied(one.request, code)))

    def answer(self, *kinds: type[m.Effect]) -> None:
        """Answer the pending requests of each kind."""
        for kind in kinds:
            found = of(kind, self.waiting)
            assert found, f"nothing of {kind} is pending"
            for one in found:
                self.waiting.remove(one)
                self._take(self.machine.handle(self.cluster.reply(one)))

    def ensemble(self) -> tuple[str, ...]:
        assert len(self.end) == 1, "the recovery has not ended"
        return self.cluster.stored.value.last_fragment.ensemble


def test_an_attempt_waits_for_identities() -> None:
    steps = Steps("b3")
    steps.add("b1", Code.TIMEOUT)
    steps.add("b2", Code.TIMEOUT)
    steps.answer(m.ListBookies)
    steps.add("b0")
    steps.answer(ReadIdentities)
    steps.add("b3")
    assert set(steps.ensemble()) > {"b0", "b3"}
    assert steps.machine.attempts == 1


def test_a_bookie_that_fails_while_identities_are_read_is_replaced_too() -> None:
    steps = Steps("b3", "b4")
    steps.add("b2", Code.TIMEOUT)
    steps.answer(m.ListBookies)
    steps.add("b1", Code.TIMEOUT)
    steps.answer(ReadIdentities, m.ListBookies, ReadIdentities)
    steps.add("b3")
    steps.add("b4")
    assert set(steps.ensemble()) == {"b0", "b3", "b4"}


def test_a_replacement_that_is_chosen_again_has_its_first_identity() -> None:
    """An earlier fragment may name b3 with what it stored before."""
    steps = Steps("b3")
    steps.add("b1", Code.TIMEOUT)
    steps.answer(m.ListBookies, ReadIdentities)
    steps.cluster.tokens["b3"] = 1
    steps.cluster.candidates = ("b4",)
    steps.add("b3", Code.UNAVAILABLE)
    steps.answer(m.ListBookies, ReadIdentities)
    steps.cluster.candidates = ("b3",)
    steps.add("b4", Code.UNAVAILABLE)
    steps.answer(m.ListBookies, ReadIdentities)
    steps.add("b3")
    steps.add("b0")
    assert steps.cluster.closes[0].identities == (Identity("b3", 0),)


def test_a_replacement_that_the_close_does_not_name_may_change() -> None:
    """Entry 0 is confirmed when b2 fails, so b3 replaces it only from entry 1 on."""
    steps = Steps("b3", is_end_known=False)
    steps.add("b0")
    steps.add("b1")
    steps.add("b2", Code.TIMEOUT)
    steps.answer(m.ListBookies, ReadIdentities, m.SendRead)
    assert steps.ensemble() == ("b0", "b1", "b2")
    assert steps.cluster.closes[0].identities == ()
