"""Jobs: begin, write, commit, and commit again if the outcome was unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    LedgerLogError,
    MetadataFormatError,
    UnauthorizedError,
)
from ledgerlog_spark.log.committing.job import plan_job
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine, JobKind
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest, NewVersion
from ledgerlog_spark.protocol.log.password import PASSWORD_CHECK
from ledgerlog_spark.protocol.log.read.versions import LogState, StateMachine
from ledgerlog_spark.protocol.log.state.records import LogHead, WriteMode
from tests.sim.log import rows
from tests.sim.log.checks import OF_THIS_CALL_ALONE, Attempt, place_of
from tests.sim.log.store import Session

if TYPE_CHECKING:
    from collections.abc import Generator

    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.protocol.log.state.records import StagedRange
    from tests.sim.log.world import Actor, World


class OldCommit(CommitMachine):
    """The commit of an older release, which stored neither the password nor the times of rows.

    It refused heads with information about a password.
    """

    def _compare_password(self, head: LogHead) -> Any:
        yield from ()
        if PASSWORD_CHECK in head.properties:
            raise MetadataFormatError("a feature that this release does not know")

    def _stored(self, head: LogHead) -> LogHead:
        return head

    def _changed(self, new: NewVersion) -> Any:
        items = tuple(replace(item, newest_ms=0) for item in new.items)
        return super()._changed(replace(new, items=items))


def job(world: World, app: str, batch_id: int, run: str, mode: WriteMode, kind: JobKind) -> Actor:
    """Run one batch, from its plan to the result of its caller."""
    session, random = world.new_session(), world.random
    ranges: list[StagedRange] = []
    try:
        is_bare = mode is WriteMode.APPEND and world.extra.random() < 0.2
        begun = yield from _planned(world, session, app, batch_id, run, mode, kind, is_bare=is_bare)
        is_first = begun.planned_version == 0
        probability = 0.03 if mode is WriteMode.APPEND else 0.2
        fewest = 0 if is_first or random.random() < probability else 1
        for _ in range(0 if is_bare else random.randint(fewest, 4)):
            ranges += [(yield from _staged(world, session, begun))]
    except LedgerLogError:
        return
    if random.random() < 0.3:
        yield world.sleep(random.randint(50, 600))
    request = CommitRequest(
        app=app,
        run=run,
        batch_id=batch_id,
        ranges=tuple(ranges),
        mode=mode,
        schema=begun.schema,
        schema_id=begun.schema_id,
        base_schema_id=begun.base_schema_id,
        planned_version=begun.planned_version,
        overwrite_if_changed=begun.overwrite_if_changed,
        password=begun.password,
        is_first=is_first,
        expected_version=begun.expected_version,
    )
    places = tuple(map(place_of, ranges))
    attempt = Attempt(
        app,
        batch_id,
        run,
        places,
        mode,
        begun.schema,
        begun.password,
        begun.planned_version,
        request.overwrite_if_changed,
        request.expected_version,
        changes_schema=request.changes_schema,
    )
    world.checks.attempts.append(attempt)
    yield from _committed(world, session, request, attempt)


def _planned(
    world: World,
    session: Session,
    app: str,
    batch_id: int,
    run: str,
    mode: WriteMode,
    kind: JobKind,
    *,
    is_bare: bool,
) -> Generator[Any, Any, Job]:
    """Plan a job. A bare job adds columns, but no rows."""
    random = world.random
    state: LogState = yield world.drive(
        session, StateMachine("log", is_fresh=random.random() < 0.5)
    )
    schema = rows.chosen_schema(random, state, mode, world.usual_schema)
    plan = plan_job(
        state,
        schema=rows.wider_schema(world.extra, state) if is_bare else schema,
        mode=mode,
        overwrite_if_changed=random.random() < 0.5,
        password=rows.password_given(random, world.password),
        expected_version=world.expected(state.head.version),
    )
    return plan.job(app=app, run=run, batch_id=batch_id, kind=kind)


def _staged(world: World, session: Session, begun: Job) -> Generator[Any, Any, StagedRange]:
    """Stage a range in a new ledger, or after the earlier ranges of its run."""
    random, place = world.random, (begun.app, begun.run)
    while True:
        machine = EpochMachine(
            "log",
            app=begun.app,
            run=begun.run,
            batch_id=begun.batch_id,
            kind=begun.kind,
            syncs_first=random.random() < 0.5,
        )
        joined = yield world.drive(session, machine)
        ledger_id = world.open.get(place)
        if ledger_id is not None and random.random() < 0.5:
            open_ledger = world.ledgers[ledger_id]
            if (open_ledger.schema, open_ledger.password) == (begun.schema, begun.password):
                break
        ledger_id = yield from world.new_ledger(
            session, begun.app, joined.version, schema=begun.schema, password=begun.password
        )
        if ledger_id is not None:
            world.open[place] = ledger_id
            break
    yield world.sleep(random.randint(1, 40))
    if world.ledgers[ledger_id].sealed_at is not None:
        world.open.pop(place, None)
        return (yield from _staged(world, session, begun))
    owner = (begun.app, begun.batch_id, begun.run)
    return world.written(ledger_id, owner, random.randint(1, 9))


def _committed(
    world: World, session: Session, request: CommitRequest, attempt: Attempt
) -> Generator[Any, Any, None]:
    """Commit until the outcome is known, and sometimes once more."""
    random, app = world.random, request.app
    is_old = world.is_old_release and (world.now < 1_500 or random.random() < 0.4)
    is_old = is_old and request.password == world.password
    for _ in range(3):
        known = world.known.get(app) if random.random() < 0.7 else None
        kind = OldCommit if is_old else CommitMachine
        machine = kind("log", request, token=world.new_token(), known=known, now_ms=world.now)
        try:
            result = yield world.drive(session, machine)
        except LedgerLogError as error:
            if not error.definite:
                attempt.reported_unknown = True
                continue
            if isinstance(error, UnauthorizedError):
                world.checks.counts["passwords refused"] += 1
            is_silent = isinstance(error, OF_THIS_CALL_ALONE)
            if not (is_silent and (attempt.reported_unknown or attempt.reported_committed)):
                attempt.reported_failed = True
                world.checks.failed(attempt)
            return
        attempt.reported_committed = True
        world.checks.reported(attempt, result)
        if machine.known_after is not None and random.random() < 0.8:
            world.known[app] = machine.known_after
        if random.random() < 0.2:
            continue  # as if the driver had died after its commit
        return
