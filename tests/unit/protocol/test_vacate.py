"""A vacation: its machine step by step, the refusals, the share of a ledger, and the rate."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

import pytest

from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Version, Versioned
from ledgerlog_spark.protocol.autorecovery.vacate import messages as m
from ledgerlog_spark.protocol.autorecovery.vacate import refusals as r
from ledgerlog_spark.protocol.autorecovery.vacate.departure import BLOCKED_MAX, Departure
from ledgerlog_spark.protocol.autorecovery.vacate.share import bytes_on, is_named
from ledgerlog_spark.protocol.autorecovery.vacate.speed import SAMPLES_MAX, Speed
from ledgerlog_spark.protocol.autorecovery.vacate.vacating import Vacating, VacatingPhase
from ledgerlog_spark.protocol.placement.places import BookieMap, BookiePlace
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy

T = TypeVar("T")

THREE = Quorum(3, 3, 2)
OPEN = LedgerMetadata(THREE, (Fragment(0, ("b0", "b1", "b2")),))
OTHER = LedgerMetadata(THREE, (Fragment(0, ("b3", "b1", "b2")),))
CLOSED = OPEN.closed(last_entry_id=9, length=1_000)
FIRST = Version(7, 0)
ABSENT = m.BookieSight.ABSENT
READ_ONLY = m.BookieSight.READ_ONLY
WRITABLE = m.BookieSight.WRITABLE


def one(effects: list[m.Effect], kind: type[T]) -> T:
    (found,) = (effect for effect in effects if isinstance(effect, kind))
    return found


class Driver:
    """Answers the requests of a machine, as a cluster with these ledgers."""

    def __init__(self, departure: Departure | None = None) -> None:
        self.machine = Vacating("b0")
        self.node: Versioned[Departure] | None = Versioned(departure or Departure(), FIRST)
        self.effects = self.machine.handle(m.VacationBegun())
        self.quiet: m.VacationPause | None = None
        self.queued: list[int] = []

    def is_in(self, phase: VacatingPhase) -> bool:
        return self.machine.phase is phase

    def loads(self) -> None:
        request = one(self.effects, m.LoadVacation).request
        self.effects = self.machine.handle(m.VacationLoaded(request, self.node))

    def sees(self, sight: m.BookieSight = READ_ONLY, registration: int | None = 1) -> None:
        request = one(self.effects, m.LookAtBookie).request
        seen = m.BookieSeen(request, sight, None if sight is ABSENT else registration)
        self.effects = self.machine.handle(seen)
        for effect in self.effects:
            if isinstance(effect, m.VacationPause) and effect.delay_ms == 60_000:
                self.quiet = effect

    def walks(self, *ledgers: LedgerMetadata) -> None:
        """Answer a walk, with one ledger on each page."""
        for number, metadata in enumerate(ledgers):
            walk = one(self.effects, m.WalkLedgers)
            assert (walk.after, walk.sync_first) == (number - 1, number == 0)
            is_last = number == len(ledgers) - 1
            page = m.LedgersWalked(walk.request, [(number, metadata)], is_last)
            self.effects = self.machine.handle(page)
            if self.machine.phase is VacatingPhase.QUEUEING:
                moves = one(self.effects, m.QueueMoves)
                self.queued += moves.ledger_ids
                self.effects = self.machine.handle(m.MovesQueued(moves.request))

    def writes(self, kind: type[m.WriteVacation | m.Retire] = m.WriteVacation) -> None:
        write = one(self.effects, kind)
        assert self.node is not None
        assert write.version == self.node.version
        version = Version(FIRST.incarnation, self.node.version.number + 1)
        self.node = Versioned(write.departure, version)
        written = m.VacationWritten(write.request, m.VacationOutcome.OK, version)
        self.effects = self.machine.handle(written)

    def fails(self, outcome: m.VacationOutcome) -> None:
        write = one(self.effects, m.WriteVacation)
        self.effects = self.machine.handle(m.VacationWritten(write.request, outcome))

    def pauses(self) -> None:
        pause = one(self.effects, m.VacationPause)
        assert pause.delay_ms == 5_000
        self.effects = self.machine.handle(m.PauseOver(pause.request))

    def becomes_quiet(self) -> None:
        assert self.quiet is not None
        assert self.machine.handle(m.PauseOver(self.quiet.request)) == []
        self.quiet = None

    def counts(self, count: int) -> None:
        request = one(self.effects, m.CountMoves).request
        self.effects = self.machine.handle(m.MovesCounted(request, count))

    def walks_until_quiet(self) -> None:
        """Walk once without a name, and become quiet."""
        self.loads()
        self.sees()
        self.effects = [e for e in self.effects if not isinstance(e, m.VacationPause)]
        self.walks(OTHER)
        self.writes()
        self.becomes_quiet()
        self.pauses()


def test_a_vacation_from_its_begin_to_its_end() -> None:
    """AUTORECOVERY.md#Y5, AUTORECOVERY.md#Y6."""
    driver = Driver(Departure(deletes_cookie=True))
    driver.loads()
    driver.sees()
    assert driver.quiet is not None
    driver.walks(CLOSED, OTHER, OPEN)
    assert driver.queued == [0, 2]
    driver.writes()
    assert driver.node is not None
    noted = driver.node.value
    assert (noted.walks, noted.ledgers_total, noted.bytes_total) == (1, 2, 1_000)
    assert (noted.blocked, noted.blocked_count) == ((2,), 1), "the open ledger"
    driver.pauses()
    driver.loads()
    driver.sees()
    driver.counts(1)
    driver.writes()
    assert (driver.node.value.ledgers_left, driver.node.value.bytes_left) == (1, 500)
    driver.becomes_quiet()
    driver.pauses()
    driver.loads()
    driver.sees()
    driver.counts(0)
    driver.walks(OTHER, OTHER)
    driver.writes()
    driver.loads()
    driver.sees()
    driver.writes(m.Retire)
    assert driver.effects == [m.VacationEnded(m.VacationEnd.VACATED)]
    assert driver.node.value.is_over
    assert driver.node.value.ledgers_total == 2


def test_the_end_of_a_drain_keeps_the_cookie() -> None:
    driver = Driver()
    driver.walks_until_quiet()
    driver.loads()
    driver.sees()
    driver.walks(OTHER)
    driver.writes()
    driver.loads()
    driver.sees()
    driver.writes()
    assert driver.effects == [m.VacationEnded(m.VacationEnd.VACATED)]


def test_a_walk_before_the_quiet_time_ends_nothing_and_is_not_repeated_at_once() -> None:
    """AUTORECOVERY.md#Y6."""
    driver = Driver()
    driver.loads()
    driver.sees()
    driver.walks(OTHER)
    driver.writes()
    for _ in range(3):
        driver.pauses()
        driver.loads()
        driver.sees()
    assert driver.is_in(VacatingPhase.PAUSING)
    driver.becomes_quiet()
    driver.pauses()
    driver.loads()
    driver.sees()
    assert driver.is_in(VacatingPhase.WALKING)


@pytest.mark.parametrize(
    ("sight", "registration"), [(WRITABLE, 1), (WRITABLE, 2), (READ_ONLY, 2), (ABSENT, None)]
)
def test_the_quiet_time_begins_again_with_another_registration(
    sight: m.BookieSight, registration: int | None
) -> None:
    """AUTORECOVERY.md#Y6: the bookie may have been writable meanwhile."""
    driver = Driver()
    driver.walks_until_quiet()
    driver.loads()
    driver.sees(sight, registration)
    if sight is WRITABLE:
        driver.pauses()
        driver.loads()
        driver.sees()
    assert driver.quiet is not None
    assert driver.is_in(VacatingPhase.PAUSING)


def test_a_vacation_that_was_begun_again_is_quiet_later() -> None:
    driver = Driver()
    driver.walks_until_quiet()
    driver.node = Versioned(Departure(), Version(FIRST.incarnation + 1, 0))
    driver.loads()
    driver.sees()
    assert driver.quiet is not None
    assert one(driver.effects, m.WalkLedgers).after == -1


def test_a_return_of_the_bookie_voids_the_walk() -> None:
    """AUTORECOVERY.md#Y7."""
    driver = Driver(Departure(deletes_cookie=True))
    driver.walks_until_quiet()
    driver.loads()
    driver.sees()
    driver.walks(OTHER)
    driver.writes()
    assert driver.node is not None
    returned = replace(driver.node.value, returns=1)
    driver.node = Versioned(returned, Version(FIRST.incarnation, 9))
    driver.loads()
    driver.sees()
    assert driver.is_in(VacatingPhase.WALKING)
    driver.walks(OTHER)
    driver.writes()
    driver.loads()
    driver.sees()
    driver.writes(m.Retire)
    assert driver.effects == [m.VacationEnded(m.VacationEnd.VACATED)]


@pytest.mark.parametrize("outcome", [m.VacationOutcome.CONFLICT, m.VacationOutcome.UNKNOWN])
def test_a_write_that_failed_is_decided_again(outcome: m.VacationOutcome) -> None:
    driver = Driver()
    driver.loads()
    driver.sees()
    driver.walks(CLOSED)
    driver.fails(outcome)
    driver.pauses()
    driver.loads()
    driver.sees()
    driver.counts(1)
    write = one(driver.effects, m.WriteVacation)
    assert (write.departure.ledgers_left, write.departure.bytes_left) == (1, 1_000)


def test_a_cancelled_vacation_ends_the_machine() -> None:
    driver = Driver()
    driver.node = None
    driver.loads()
    assert driver.effects == [m.VacationEnded(m.VacationEnd.CANCELLED)]
    assert driver.machine.handle(m.PauseOver(99)) == []


def test_a_vacation_that_is_over_ends_the_machine() -> None:
    driver = Driver(Departure(is_over=True))
    driver.loads()
    assert driver.effects == [m.VacationEnded(m.VacationEnd.VACATED)]


def test_ledgers_are_walked_again_after_ten_minutes_although_moves_are_left() -> None:
    driver = Driver()
    driver.loads()
    driver.sees()
    driver.walks(CLOSED)
    driver.writes()
    for _ in range(119):
        driver.pauses()
        driver.loads()
        driver.sees()
        driver.counts(1)
    driver.pauses()
    driver.loads()
    driver.sees()
    assert driver.is_in(VacatingPhase.WALKING)


def test_a_request_that_failed_is_followed_by_a_pause() -> None:
    driver = Driver()
    request = one(driver.effects, m.LoadVacation).request
    driver.effects = driver.machine.handle(m.VacateFailed(request))
    driver.pauses()
    driver.loads()
    driver.sees()
    walk = one(driver.effects, m.WalkLedgers)
    driver.effects = driver.machine.handle(m.VacateFailed(walk.request))
    driver.pauses()
    driver.loads()
    driver.sees()
    assert driver.is_in(VacatingPhase.WALKING)


def test_the_quiet_time_of_an_earlier_registration_does_not_count() -> None:
    """AUTORECOVERY.md#Y6."""
    driver = Driver()
    driver.loads()
    driver.sees()
    earlier = driver.quiet
    assert earlier is not None
    driver.walks(OTHER)
    driver.writes()
    driver.pauses()
    driver.loads()
    driver.sees(registration=2)
    driver.effects = [e for e in driver.effects if e is not driver.quiet]
    assert driver.machine.handle(m.PauseOver(earlier.request)) == []
    driver.pauses()
    driver.loads()
    driver.sees(registration=2)
    assert driver.is_in(VacatingPhase.PAUSING)
    driver.becomes_quiet()
    driver.pauses()
    driver.loads()
    driver.sees(registration=2)
    assert driver.is_in(VacatingPhase.WALKING)


def walk_once(driver: Driver, page: list[tuple[int, LedgerMetadata]], *unreadable: int) -> None:
    """Answer a walk with one page, and queue its moves."""
    request = one(driver.effects, m.WalkLedgers).request
    walked = m.LedgersWalked(request, page, is_last=True, unreadable=unreadable)
    driver.effects = driver.machine.handle(walked)
    moves = one(driver.effects, m.QueueMoves)
    driver.queued += moves.ledger_ids
    driver.effects = driver.machine.handle(m.MovesQueued(moves.request))


def test_the_ledgers_that_a_vacation_names_are_bounded_and_all_are_counted() -> None:
    driver = Driver()
    driver.loads()
    driver.sees()
    more = BLOCKED_MAX + 5
    walk_once(driver, [(number, OPEN) for number in range(more)], *range(100, 100 + more))
    assert len(driver.queued) == 2 * more
    driver.writes()
    assert driver.node is not None
    noted = driver.node.value
    assert noted.blocked == tuple(range(BLOCKED_MAX))
    assert noted.unreadable == tuple(range(100, 100 + BLOCKED_MAX))
    assert (noted.blocked_count, noted.ledgers_left) == (2 * more, 2 * more)


def test_a_ledger_that_cannot_be_read_prevents_the_end() -> None:
    """AUTORECOVERY.md#Y6: it may name the bookie."""
    driver = Driver()
    driver.walks_until_quiet()
    driver.loads()
    driver.sees()
    walk_once(driver, [(1, OTHER)], 7)
    driver.writes()
    assert driver.node is not None
    assert driver.node.value.ledgers_left == 1
    assert driver.is_in(VacatingPhase.PAUSING)


def test_moves_of_other_bookies_do_not_count() -> None:
    driver = Driver()
    driver.loads()
    driver.sees()
    driver.walks(CLOSED)
    driver.writes()
    driver.pauses()
    driver.loads()
    driver.sees()
    driver.counts(9)
    assert driver.is_in(VacatingPhase.PAUSING), "one ledger is left, as before"


@pytest.mark.parametrize("outcome", [m.VacationOutcome.CONFLICT, m.VacationOutcome.UNKNOWN])
def test_a_vacation_whose_end_was_not_written_goes_on(outcome: m.VacationOutcome) -> None:
    """AUTORECOVERY.md#Y7."""
    driver = Driver(Departure(deletes_cookie=True))
    driver.walks_until_quiet()
    driver.loads()
    driver.sees()
    driver.walks(OTHER)
    driver.writes()
    driver.loads()
    driver.sees()
    request = one(driver.effects, m.Retire).request
    driver.effects = driver.machine.handle(m.VacationWritten(request, outcome))
    driver.pauses()
    driver.loads()
    driver.sees()
    assert driver.is_in(VacatingPhase.WALKING)


def test_the_share_of_a_bookie_counts_its_fragments_and_stripes() -> None:
    striped = LedgerMetadata(
        Quorum(4, 2, 2),
        (Fragment(0, ("b0", "b1", "b2", "b3")), Fragment(30, ("b4", "b1", "b2", "b3"))),
    ).closed(last_entry_id=99, length=10_000)
    assert bytes_on(striped, "b0") == 10_000 * 30 // 100 * 2 // 4
    assert bytes_on(striped, "b1") == 5_000
    assert bytes_on(striped, "b4") == 3_500
    assert bytes_on(striped, "b9") == 0
    assert bytes_on(OPEN, "b0") == 0
    assert is_named(OPEN, "b0")


def test_a_fragment_beyond_the_end_names_its_bookie_and_has_no_bytes() -> None:
    metadata = LedgerMetadata(
        THREE, (Fragment(0, ("b0", "b1", "b2")), Fragment(10, ("b3", "b1", "b2")))
    ).closed(last_entry_id=9, length=900)
    assert is_named(metadata, "b3")
    assert (bytes_on(metadata, "b3"), bytes_on(metadata, "b0")) == (0, 900)
    later = replace(metadata, fragments=(metadata.fragments[0], Fragment(12, ("b3", "b1", "b2"))))
    assert (bytes_on(later, "b3"), bytes_on(later, "b0"), bytes_on(later, "b1")) == (0, 900, 900)
    empty = OPEN.closed(last_entry_id=-1, length=0)
    assert (is_named(empty, "b0"), bytes_on(empty, "b0")) == (True, 0)


def around(**changes: object) -> r.Surroundings:
    names = ("b0", "b1", "b2", "b3")
    usual = r.Surroundings(
        is_enabled=True,
        known=frozenset(names),
        registered=frozenset(names),
        writable=names,
        free_bytes=dict.fromkeys(names, 10_000),
        others=(),
        bookies=BookieMap({name: BookiePlace(f"h{name}") for name in names}),
        policy=PlacementPolicy(),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def held(*ledgers: LedgerMetadata) -> r.Holdings:
    found = r.Holdings("b0")
    for metadata in ledgers:
        found.add(metadata)
    return found


def test_a_vacation_that_can_begin_has_no_refusal() -> None:
    assert r.refusals(held(CLOSED, OPEN, OTHER), around(), is_recovery=False) == []
    assert (held(CLOSED, OPEN, OTHER).ledgers, held(CLOSED, OPEN).open_ledgers) == (2, 1)


def test_the_ensembles_of_a_survey_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r, "ENSEMBLES_MAX", 2)
    found = r.Holdings("b0")
    for name in ("b1", "b2", "b3", "b1"):
        fragment = Fragment(0, ("b0", name, "b9"))
        found.add(LedgerMetadata(THREE, (fragment,)).closed(last_entry_id=9, length=10))
    assert (found.ledgers, found.size_bytes) == (4, 40)
    assert list(found.shapes.values()) == [2, 1]


@pytest.mark.parametrize(
    ("changes", "is_recovery", "message"),
    [
        ({"is_enabled": False}, False, "ledgerlog autorecovery enable"),
        ({"others": ("b2",)}, False, "bookie b2 is being taken out of service"),
        ({}, True, "b0 is registered, so its copies can be read"),
        (
            {"writable": ("b0", "b1", "b2")},
            False,
            "1 fragments with .* 3 have no target",
        ),
        ({"free_bytes": dict.fromkeys(("b1", "b2", "b3"), 400)}, False, "1,000 bytes.*1,200 free"),
    ],
)
def test_each_refusal_has_its_figures(
    changes: dict[str, object], is_recovery: bool, message: str
) -> None:
    """AUTORECOVERY.md#Y3."""
    (found,) = r.refusals(held(CLOSED), around(**changes), is_recovery=is_recovery)
    assert re.search(message, found), found


def test_eighty_percent_of_the_free_bytes_are_enough() -> None:
    free = dict.fromkeys(("b1", "b2", "b3"), 1_250 // 3 + 1)
    assert r.refusals(held(CLOSED), around(free_bytes=free), is_recovery=False) == []
    unknown = {"b1": 1, "b2": 1, "b3": None}
    assert r.refusals(held(CLOSED), around(free_bytes=unknown), is_recovery=False) == []


def test_a_bookie_that_is_not_known_is_refused_unless_a_ledger_names_it() -> None:
    nobody = around(known=frozenset(), registered=frozenset(), writable=("b1", "b2", "b3"))
    (found,) = r.refusals(held(), nobody, is_recovery=True)
    assert "b0 is not known" in found
    assert r.refusals(held(CLOSED), nobody, is_recovery=True) == []


def test_a_target_on_the_host_of_another_copy_is_none() -> None:
    places = {"b1": BookiePlace("h1"), "b2": BookiePlace("h2"), "b3": BookiePlace("h1")}
    (found,) = r.refusals(held(CLOSED), around(bookies=BookieMap(places)), is_recovery=False)
    assert "too few hosts among the 3 other writable bookies" in found


def test_the_rate_is_of_the_last_two_minutes() -> None:
    speed = Speed()
    assert speed.note(0, 100, 1_000).left_s is None
    rate = speed.note(10, 90, 800)
    assert (rate.ledgers_per_s, rate.bytes_per_s, rate.left_s) == (1.0, 20.0, 90.0)
    for second in range(20, 200, 10):
        rate = speed.note(second, 90, 800)
    assert (rate.bytes_per_s, rate.left_s) == (0.0, None)
    rate = speed.note(200, 95, 900)
    assert (rate.ledgers_per_s, rate.left_s) == (0.0, None), "more was found"


def test_the_samples_of_a_rate_are_bounded() -> None:
    speed = Speed()
    for number in range(10 * SAMPLES_MAX):
        speed.note(number / 1_000, 10**6 - number, 0)
    assert len(speed._samples) == SAMPLES_MAX
