"""What an operator may give up, what is recorded first, and the calls of the control service."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from bookie_server.core.doubt import Doubt
from bookie_server.errors import StorageError
from bookie_server.service.grpc.limbo import LEDGERS_MAX, LimboCalls
from bookie_server.service.repair import audit
from bookie_server.service.repair.acceptance import Acceptance, LossAcceptance
from bookie_server.service.repair.audit import AuditFile
from ledgerlog_spark.errors import LedgerError, MetadataUnavailableError
from ledgerlog_spark.model import Code
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.wire.accepted_loss import ENTRIES_MAX, TEXT_MAX, AcceptedLoss
from tests.fixtures.repair_world import ME, OPEN, RepairWorld, stored
from tests.sim.disk import SimDisk, SimFileSystem

LOSS = AcceptedLoss(ME, 7, 1, "closed", 2, (1,), 1, 1_700_000_000_000, "me@here", "disks are gone")


class MemoryLosses:
    """Implements `AcceptedLosses`."""

    def __init__(self) -> None:
        self.written: list[AcceptedLoss] = []
        self.is_away = False
        self.before: Callable[[], None] = lambda: None

    async def write(self, loss: AcceptedLoss) -> None:
        self.before()
        if self.is_away:
            raise MetadataUnavailableError("the store is away")
        self.written.append(loss)


class World(RepairWorld):
    """A bookie in doubt, whose operator accepts losses."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk(Random(1))
        self.losses: Any = cast("Any", MemoryLosses())
        files = SimFileSystem(self.disk, self.host)
        self.audit = AuditFile(files)
        self.acceptance = LossAcceptance(
            self.parts, self.progress, self.audit, self.losses, self.host
        )
        self.calls = LimboCalls(self.storage, self.progress, self.acceptance)

    def accept(self, ledger_id: int = 7, **rest: Any) -> AcceptedLoss | None:
        acceptance = Acceptance(ledger_id, "disks are gone", "me@here", **rest)
        loss: AcceptedLoss | None = self.run(self.acceptance.accept(acceptance))
        return loss

    def lines(self) -> list[bytes]:
        """The lines of the file AUDIT on the device."""
        content = self.disk.durable_names.get(audit.NAME)
        return [] if content is None else bytes(content.durable).splitlines()

    def lost(self, ledger_id: int = 7) -> None:
        """Create a closed ledger whose entry 1 nobody has."""
        self.closed(ledger_id, held=[0])
        for name in ("b1", "b2"):
            del self.peers.entries[name][ledger_id, 1]


@pytest.fixture
def world() -> World:
    return World()


def test_a_loss_is_recorded_twice_before_the_limbo_ends(world: World) -> None:
    world.lost()
    seen: list[Any] = []
    world.losses.before = lambda: seen.append((len(world.lines()), world.storage.limbo_ledgers()))
    assert world.accept() == LOSS
    assert seen == [(1, [7])]
    assert [AcceptedLoss.decode(line) for line in world.lines()] == world.losses.written == [LOSS]
    assert world.storage.limbo_ledgers() == []
    assert world.storage.written[-1] == ("clear", 7, 1, 2)
    assert world.progress.needs_operator == 0


def test_what_a_repair_finds_is_not_given_up(world: World) -> None:
    world.closed(7, held=[0])
    assert world.accept() is None
    assert world.lines() == []
    assert len(world.storage.entries[7]) == 3


def test_what_another_bookie_may_have_is_not_given_up(world: World) -> None:
    world.lost()
    world.peers.codes["b2"] = Code.UNAVAILABLE
    with pytest.raises(
        LedgerError, match=r"b2, entry 1: unavailable\..*start the bookies"
    ) as refused:
        world.accept()
    assert refused.value.retriable
    assert world.storage.limbo_ledgers() == [7]
    loss = world.accept(is_forced=True)
    assert loss is not None
    assert (loss.entry_ids, loss.entries_count) == ((1,), 1)


def test_without_the_record_nothing_is_given_up(world: World) -> None:
    world.lost()
    world.storage.code = Code.READ_ONLY
    with pytest.raises(LedgerError, match="could not be repaired: a fetched entry"):
        world.accept(is_forced=True)


@pytest.mark.parametrize("loses", [True, False])
def test_an_open_ledger_is_sealed_first(world: World, loses: bool) -> None:
    world.ledger(7, OPEN, held=[0])
    if loses:
        for name in ("b1", "b2"):
            del world.peers.entries[name][7, 1]
    with pytest.raises(LedgerError, match="ledgerlog ledgers seal 7"):
        world.accept(is_unclosed=True)
    assert world.lines() == []


def test_a_ledger_in_recovery_needs_one_more_word(world: World) -> None:
    world.ledger(7, OPEN.in_recovery(), held=[0])
    with pytest.raises(LedgerError, match="--unclosed"):
        world.accept()
    loss = world.accept(is_unclosed=True)
    assert loss is not None
    assert (loss.state, loss.last_entry_id, loss.entries_count) == ("in_recovery", -1, 0)
    assert world.storage.written[-1] == ("clear", 7, 1, -1)


def test_a_deleted_ledger_is_not_given_up(world: World) -> None:
    world.storage.hold(7, {0: stored(7, 0)})
    with pytest.raises(LedgerError, match="does not exist"):
        world.accept()


def test_a_ledger_that_is_not_in_limbo_is_refused(world: World) -> None:
    world.closed(7)
    world.storage.cleared[7] = 1
    with pytest.raises(LedgerError, match="ledger 7 is not in limbo on bookie b0"):
        world.accept()


def test_a_ledger_without_a_state_may_be_given_up_during_the_doubt(world: World) -> None:
    world.lost()
    world.storage.entries.clear()
    world.storage.cleared.clear()
    assert world.accept() is not None
    world.storage.doubt = world.storage.doubt.ended(1)
    with pytest.raises(LedgerError, match="not in limbo"):
        world.accept(8)


def test_nothing_is_given_up_before_the_store_has_the_doubt(world: World) -> None:
    world.lost()
    world.storage.doubt = Doubt(epoch=1)
    with pytest.raises(LedgerError, match="does not have the doubt"):
        world.accept()


def test_without_the_store_the_ledger_stays_in_limbo(world: World) -> None:
    world.lost()
    world.losses.is_away = True
    with pytest.raises(MetadataUnavailableError):
        world.accept()
    assert world.storage.limbo_ledgers() == [7]
    world.losses.is_away = False
    assert world.accept() == LOSS
    assert len(world.lines()) == 2, "the first attempt is in AUDIT too"


def test_a_limbo_whose_end_is_not_stored_is_reported(world: World) -> None:
    world.lost()
    world.repair(7)
    world.storage.code = Code.IO_ERROR
    with pytest.raises(LedgerError, match="run this command again"):
        world.accept()


def test_a_torn_line_of_audit_does_not_damage_the_next(world: World) -> None:
    world.run(world.audit.append(LOSS))
    content = world.disk.durable_names[audit.NAME]
    file = world.run(world.audit._files.open(audit.NAME))
    end = len(content.durable)
    world.run(file.truncate(end - 5))
    world.run(file.datasync())
    world.run(file.close())
    world.run(world.audit.append(LOSS))
    lines = world.lines()
    assert len(lines) == 2
    assert AcceptedLoss.decode(lines[1]) == LOSS


def test_audit_has_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "SIZE_BYTES_MAX", 300)
    world.run(world.audit.append(LOSS))
    with pytest.raises(StorageError, match="move the file"):
        world.run(world.audit.append(LOSS))


def test_texts_have_a_bound(world: World) -> None:
    world.lost()
    loss = world.run(world.acceptance.accept(Acceptance(7, "x" * 9_999, "y" * 9_999)))
    assert (len(loss.reason), len(loss.accepted_by)) == (TEXT_MAX, TEXT_MAX)
    most = AcceptedLoss(
        "b" * 200, 2**62, 9, "closed", 2**62, (2**62,) * ENTRIES_MAX, 2**62, 1, "é" * 500, "é" * 500
    )
    assert len(most.encode()) < 65_536
    assert AcceptedLoss.decode(most.encode()) == most


# The calls.


def test_the_list_has_pages(world: World) -> None:
    for ledger_id in range(10):
        world.ledger(ledger_id, OPEN, held=[0])
    first = world.calls.listed(pb.ListLimboRequest(after_ledger_id=-1, count_max=6))
    assert [each.ledger_id for each in first.ledgers] == list(range(6))
    assert first.has_more
    assert (first.epoch, first.is_in_doubt) == (1, True)
    rest = world.calls.listed(pb.ListLimboRequest(after_ledger_id=5, count_max=LEDGERS_MAX + 1))
    assert [each.ledger_id for each in rest.ledgers] == list(range(6, 10))
    assert not rest.has_more
    assert len(world.calls.listed(pb.ListLimboRequest(after_ledger_id=-1)).ledgers) == 1


def test_the_list_shows_why_a_ledger_is_not_cleared(world: World) -> None:
    world.lost(7)
    world.ledger(8, OPEN, held=[0])
    world.ledger(9, OPEN, held=[0])
    for ledger_id in (7, 8):
        world.progress.note(ledger_id, world.repair(ledger_id))
    listed = world.calls.listed(pb.ListLimboRequest(after_ledger_id=-1, count_max=10))
    assert [(one.outcome, one.state, list(one.missing)) for one in listed.ledgers] == [
        ("needs_operator", "closed", [1]),
        ("waiting", "open", []),
        ("", "", []),
    ]


def raise_doubt(world: World, reason: str) -> pb.RaiseDoubtReply:
    request = pb.RaiseDoubtRequest(reason=reason, raised_by="me@here")
    reply: pb.RaiseDoubtReply = world.run(world.calls.raise_doubt(request))
    return reply


def test_an_operator_raises_the_doubt(world: World) -> None:
    before = world.storage.doubt.epoch
    assert raise_doubt(world, " ").refusal
    assert world.storage.doubt.epoch == before
    reply = raise_doubt(world, "a file was restored")
    assert (reply.refusal, reply.epoch) == ("", before + 1)
    assert world.storage.doubt.epoch == before + 1
    assert not world.storage.doubt.is_over


def test_a_doubt_that_is_not_durable_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise StorageError("the device is gone", path=".")

    monkeypatch.setattr(world.storage, "raise_doubt", fail)
    assert "the device is gone" in raise_doubt(world, "a file was restored").refusal


def accept(world: World, ledger_id: int = 7, reason: str = "disks are gone") -> pb.AcceptLossReply:
    request = pb.AcceptLossRequest(ledger_id=ledger_id, reason=reason, accepted_by="me@here")
    reply: pb.AcceptLossReply = world.run(world.calls.accept(request))
    return reply


def test_a_loss_is_accepted_over_grpc(world: World) -> None:
    world.lost()
    reply = accept(world)
    assert (reply.refusal, reply.is_lost, list(reply.entry_ids)) == ("", True, [1])
    assert reply.entries_count == 1


def test_a_repaired_ledger_is_no_loss_over_grpc(world: World) -> None:
    world.closed(7, held=[0])
    assert accept(world) == pb.AcceptLossReply()


@pytest.mark.parametrize(("ledger_id", "reason"), [(-1, "why"), (7, " ")])
def test_a_request_needs_a_ledger_and_a_reason(world: World, ledger_id: int, reason: str) -> None:
    world.lost()
    reply = accept(world, ledger_id, reason)
    assert "needs the id of a ledger, and a reason" in reply.refusal
    assert not reply.is_retriable


def test_a_refusal_states_whether_it_may_pass(world: World) -> None:
    world.lost()
    world.losses.is_away = True
    reply = accept(world)
    assert (reply.refusal, reply.is_retriable) == ("the store is away", True)
    assert not accept(world, 8).is_lost


def test_one_loss_is_accepted_at_a_time(world: World) -> None:
    world.lost()
    other: list[pb.AcceptLossReply] = []
    request = pb.AcceptLossRequest(ledger_id=7, reason="again")

    def ask_again() -> None:
        async def ask() -> None:
            other.append(await world.calls.accept(request))

        world.host.spawn("another operator", ask())

    world.losses.before = ask_again

    async def both() -> None:
        await world.calls.accept(request)
        await world.host.sleep(100)

    # The second request begins while the first one waits for the store.
    write = world.losses.write

    async def slow(loss: AcceptedLoss) -> None:
        await write(loss)
        await world.host.sleep(50)

    world.losses.write = slow
    world.run(both())
    assert "another loss is being accepted" in other[0].refusal
    assert other[0].is_retriable
