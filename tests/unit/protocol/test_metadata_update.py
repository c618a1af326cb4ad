"""The compare-and-swap loop determines every outcome, and guesses none."""

from __future__ import annotations

from dataclasses import replace

from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Version, Versioned
from ledgerlog_spark.protocol.ledger.identities import Identity
from ledgerlog_spark.protocol.ledger.messages import (
    CasMetadata,
    Failure,
    LoadMetadata,
    MetadataLoaded,
    MetadataOutcome,
    MetadataWritten,
    StartTimer,
    TimerFired,
)
from ledgerlog_spark.protocol.ledger.metadata_update import MetadataUpdate, Refusal
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy
from tests.fixtures.kinds import only

OPEN = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("b0",)),))
AT_0 = Versioned(OPEN, Version(1, 0))
MARKED = OPEN.in_recovery()
OK, CONFLICT, UNKNOWN = MetadataOutcome.OK, MetadataOutcome.CONFLICT, MetadataOutcome.UNKNOWN
BOOKIE_CHANGED = MetadataOutcome.BOOKIE_CHANGED


def mark(current: LedgerMetadata) -> LedgerMetadata | Refusal:
    return Refusal(Failure.CLOSED) if current.is_closed else current.in_recovery()


def begun(
    attempts_max: int = 5, identities: tuple[Identity, ...] = ()
) -> tuple[MetadataUpdate, CasMetadata]:
    update = MetadataUpdate(
        current=AT_0,
        decide=mark,
        numbers=RequestNumbers(),
        retry=RetryPolicy(first_delay_ms=10, delay_max_ms=15, attempts_max=attempts_max),
        identities=identities,
    )
    (cas,), result = update.begin()
    assert result is None
    assert isinstance(cas, CasMetadata)
    return update, cas


def test_a_write_that_is_answered_is_done() -> None:
    update, cas = begun()
    stored = Versioned(MARKED, Version(1, 1))
    effects, result = update.handle(MetadataWritten(cas.request, OK, stored))
    assert effects == []
    assert result is not None
    assert (result.failure, result.current) == (None, stored)


def test_a_lost_race_is_decided_again_over_what_is_there() -> None:
    update, cas = begun()
    (load,), _ = update.handle(MetadataWritten(cas.request, CONFLICT))
    assert isinstance(load, LoadMetadata)
    assert load.sync_first
    other = replace(OPEN, token=5)
    (again,), _ = update.handle(MetadataLoaded(load.request, OK, Versioned(other, Version(1, 1))))
    assert isinstance(again, CasMetadata)
    assert (again.metadata, again.version) == (other.in_recovery(), Version(1, 1))


def test_a_lost_race_that_forbids_the_change_is_a_definite_refusal() -> None:
    update, cas = begun()
    (load,), _ = update.handle(MetadataWritten(cas.request, CONFLICT))
    closed = OPEN.closed(last_entry_id=4, length=50)
    _, result = update.handle(MetadataLoaded(load.request, OK, Versioned(closed, Version(1, 1))))
    assert result is not None
    assert (result.failure, result.is_definite) == (Failure.CLOSED, True)


def lost(update: MetadataUpdate, cas: CasMetadata) -> LoadMetadata:
    (timer,), _ = update.handle(MetadataWritten(cas.request, UNKNOWN))
    assert isinstance(timer, StartTimer)
    (load,), _ = update.handle(TimerFired(timer.request))
    assert isinstance(load, LoadMetadata)
    return load


def test_an_unknown_write_that_is_found_is_a_success() -> None:
    update, cas = begun()
    load = lost(update, cas)
    stored = Versioned(MARKED, Version(1, 1))
    _, result = update.handle(MetadataLoaded(load.request, OK, stored))
    assert result is not None
    assert (result.failure, result.current) == (None, stored)


def test_an_unknown_write_that_is_not_found_is_sent_again_at_the_same_version() -> None:
    update, cas = begun()
    load = lost(update, cas)
    (timer,), _ = update.handle(MetadataLoaded(load.request, OK, AT_0))
    (again,), _ = update.handle(TimerFired(timer.request))
    assert isinstance(again, CasMetadata)
    assert (again.metadata, again.version) == (cas.metadata, cas.version)
    # The first write takes effect late. The second conflicts, and finds the intended metadata.
    asked, _ = update.handle(MetadataWritten(again.request, CONFLICT))
    load = only(LoadMetadata, asked)
    _, result = update.handle(MetadataLoaded(load.request, OK, Versioned(MARKED, Version(1, 1))))
    assert result is not None
    assert result.failure is None


SAME = (Identity("b3", 0),)


def test_a_write_that_meets_another_bookie_is_a_definite_failure() -> None:
    update, cas = begun(identities=SAME)
    assert cas.identities == SAME
    effects, result = update.handle(MetadataWritten(cas.request, BOOKIE_CHANGED))
    assert effects == []
    assert result is not None
    assert (result.failure, result.is_definite) == (Failure.BOOKIE_CHANGED, True)
    assert result.current == AT_0


def test_an_unknown_write_stays_unknown_when_the_next_meets_another_bookie() -> None:
    """PROTOCOL.md#C25. The second write has the same identities."""
    update, cas = begun(identities=SAME)
    load = lost(update, cas)
    (timer,), _ = update.handle(MetadataLoaded(load.request, OK, AT_0))
    (again,), _ = update.handle(TimerFired(timer.request))
    assert isinstance(again, CasMetadata)
    assert again.identities == SAME
    _, result = update.handle(MetadataWritten(again.request, BOOKIE_CHANGED))
    assert result is not None
    assert (result.failure, result.is_definite) == (Failure.BOOKIE_CHANGED, False)


def test_a_record_of_another_incarnation_is_not_the_version_that_was_written_against() -> None:
    update, cas = begun()
    load = lost(update, cas)
    (again,), _ = update.handle(MetadataLoaded(load.request, OK, Versioned(OPEN, Version(2, 0))))
    assert isinstance(again, CasMetadata)
    assert again.version == Version(2, 0)


def test_a_record_that_somebody_else_made_is_not_ours_though_it_says_the_same() -> None:
    """The ledger was deleted. Another client created one with its id, and made the same change."""
    update, cas = begun()
    load = lost(update, cas)
    other = Versioned(replace(MARKED, token=5), Version(2, 1))
    (again,), result = update.handle(MetadataLoaded(load.request, OK, other))
    assert result is None
    assert isinstance(again, CasMetadata)
    assert (again.metadata, again.version) == (other.value, other.version)


def test_giving_up_after_an_unknown_write_is_not_definite() -> None:
    update, cas = begun(attempts_max=2)
    load = lost(update, cas)
    _, result = update.handle(MetadataLoaded(load.request, OK, AT_0))
    assert result is not None
    assert (result.failure, result.is_definite) == (Failure.METADATA_UNAVAILABLE, False)


def test_giving_up_when_nothing_was_ever_sent_is_definite() -> None:
    update, cas = begun(attempts_max=1)
    _, result = update.handle(MetadataWritten(cas.request, MetadataOutcome.UNAVAILABLE))
    assert result is not None
    assert (result.failure, result.is_definite) == (Failure.METADATA_UNAVAILABLE, True)


def test_a_store_that_is_away_is_tried_again_with_growing_delays() -> None:
    update, cas = begun()
    delays = []
    for _ in range(3):
        (timer,), _ = update.handle(MetadataWritten(cas.request, MetadataOutcome.UNAVAILABLE))
        assert isinstance(timer, StartTimer)
        delays.append(timer.delay_ms)
        (cas,), _ = update.handle(TimerFired(timer.request))  # type: ignore[assignment]
    assert delays == [10, 15, 15]


def test_a_deleted_record_ends_the_change() -> None:
    update, cas = begun()
    _, result = update.handle(MetadataWritten(cas.request, MetadataOutcome.GONE))
    assert result is not None
    # The write may have arrived twice, and the record may have been deleted in between.
    assert (result.failure, result.is_definite) == (Failure.NOT_FOUND, False)


def test_a_conflict_is_not_definite_before_the_record_was_read() -> None:
    update, cas = begun(attempts_max=1)
    (load,), _ = update.handle(MetadataWritten(cas.request, CONFLICT))
    _, result = update.handle(MetadataLoaded(load.request, MetadataOutcome.UNAVAILABLE))
    assert result is not None
    assert (result.failure, result.is_definite) == (Failure.METADATA_UNAVAILABLE, False)


def test_what_may_have_been_written_before_is_not_definite_until_the_record_was_read() -> None:
    for outcome, is_definite in ((MetadataOutcome.UNAVAILABLE, False), (OK, True)):
        update = MetadataUpdate(
            current=AT_0,
            decide=mark,
            numbers=RequestNumbers(),
            retry=RetryPolicy(first_delay_ms=10, delay_max_ms=15, attempts_max=1),
            may_be_written=True,
        )
        (cas,), _ = update.begin()
        (load,), _ = update.handle(MetadataWritten(cas.request, CONFLICT))
        closed = Versioned(OPEN.closed(last_entry_id=4, length=50), Version(1, 1))
        found = closed if outcome is OK else None
        _, result = update.handle(MetadataLoaded(load.request, outcome, found))
        assert result is not None
        assert result.is_definite is is_definite
