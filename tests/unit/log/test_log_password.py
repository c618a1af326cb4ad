"""One password for all ledgers of a log, compared by every commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import (
    ConfigurationError,
    DataLossError,
    MetadataFormatError,
    UnauthorizedError,
)
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.merge import MergeMachine, MergeRequest
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.password import (
    PASSWORD_CHECK,
    check_password,
    password_check,
    with_password,
)
from ledgerlog_spark.protocol.log.properties import (
    LogProperties,
    PropertiesMachine,
    changed_properties,
)
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode
from tests.unit.log.log_values import OneLog, full_statistics, new_head, staged, token
from tests.unit.log.log_world import SCHEMA, LogWorld, of, payloads, write

SALT = bytes(range(16))


class GuardedLog(OneLog):
    """A log whose ledgers have passwords, by ledger id. None means no metadata."""

    def __init__(self) -> None:
        super().__init__()
        self.passwords: dict[int, bytes | None] = {}
        self.asked_of: list[int] = []

    def reply(self, ask: Any) -> Any:
        if not isinstance(ask, m.ReadPassword):
            return super().reply(ask)
        self.asked_of.append(ask.ledger_id)
        password = self.passwords[ask.ledger_id]
        if password is None:
            return m.PasswordRead(ask.request, MetadataOutcome.GONE)
        return m.PasswordRead(ask.request, MetadataOutcome.OK, password)

    def write(self, password: bytes, *ledger_ids: int, **how: Any) -> Any:
        self.passwords |= dict.fromkeys(ledger_ids, password)
        ranges = [staged(ledger_id, statistics=full_statistics(1)) for ledger_id in ledger_ids]
        return self.commit(*ranges, password=password, **how)

    def forget_password(self) -> None:
        """Make the head one of an older release."""
        head = self.head.value
        old = replace(head, properties={}, writer_features=())
        self.head = Versioned(old, self.head.version)


@pytest.mark.parametrize("ranges", [1, 31, 32, 100, 400])
def test_commit_under_another_password_is_refused_whatever_was_spilled(ranges: int) -> None:
    log = GuardedLog()
    log.write(b"right", *range(ranges))
    before = log.head
    for wrong in (b"", b"wrong"):
        with pytest.raises(UnauthorizedError) as refused:
            log.write(wrong, 1_000)
        assert refused.value.definite
        with pytest.raises(UnauthorizedError):
            log.write(wrong, 1_000, mode=WriteMode.OVERWRITE)
    assert log.head == before
    log.write(b"right", 1_001)
    assert log.asked_of == []


def test_log_without_a_password_stays_without() -> None:
    log = GuardedLog()
    log.write(b"", *range(40))
    assert log.head.value.properties == {PASSWORD_CHECK: "none"}
    with pytest.raises(UnauthorizedError, match="has no password"):
        log.write(b"secret", 50)
    log.write(b"", 51)


def test_overwrite_without_rows_lists_no_ledger_and_needs_no_password() -> None:
    log = GuardedLog()
    log.commit(mode=WriteMode.OVERWRITE)
    assert PASSWORD_CHECK not in log.head.value.properties
    log.write(b"right", 1)
    log.commit(mode=WriteMode.OVERWRITE)
    with pytest.raises(UnauthorizedError):
        log.write(b"", 2)


@pytest.mark.parametrize("ranges", [3, 100, 5_000])
def test_head_of_an_older_version_is_checked_against_a_listed_ledger_and_then_stores_it(
    ranges: int,
) -> None:
    log = GuardedLog()
    log.write(b"right", *range(ranges))
    log.forget_password()
    with pytest.raises(UnauthorizedError):
        log.write(b"", 30_000)
    assert log.asked_of == [ranges - 1]
    log.write(b"right", 30_001)
    assert log.asked_of == [ranges - 1, ranges - 1]
    check_password("flights", log.head.value, b"right")
    log.write(b"right", 30_002)
    assert log.asked_of == [ranges - 1, ranges - 1], "the head says it from then on"


def test_ledgers_without_a_record_are_skipped_and_the_next_one_is_read() -> None:
    log = GuardedLog()
    log.write(b"right", *range(3))
    log.forget_password()
    log.passwords[2] = None
    with pytest.raises(UnauthorizedError):
        log.write(b"wrong", 30)
    assert log.asked_of == [2, 1]
    log.passwords |= {0: None, 1: None}
    with pytest.raises(DataLossError, match="logs check"):
        log.write(b"right", 31)


def test_log_that_lists_nothing_any_more_takes_any_password() -> None:
    log = GuardedLog()
    log.write(b"old", 1)
    log.forget_password()
    head = log.head.value
    empty = replace(
        head,
        items=replace(head.items, recent=()),
        start_offset=head.end_offset,
        oldest_offset=head.end_offset,
    )
    log.head = Versioned(empty, log.head.version)
    log.write(b"new", 2)
    with pytest.raises(UnauthorizedError):
        log.write(b"old", 3)


def test_of_two_first_writers_with_two_passwords_one_commits() -> None:
    log = GuardedLog()
    log.producer("late", "run")
    log.register("late", 9)
    request = CommitRequest("late", "run", 0, (staged(9),), password=b"late")
    machine = CommitMachine("flights", request, token=token(1 << 8))
    (ask,) = machine.start()
    while not isinstance(ask, m.WriteHead):
        (ask,) = machine.handle(log.reply(ask))
    log.write(b"first", 1)
    (ask,) = machine.handle(m.Written(ask.request, MetadataOutcome.CONFLICT))
    while not isinstance(ask, m.Finished | m.Failed):
        (ask,) = machine.handle(log.reply(ask))
    assert isinstance(ask, m.Failed)
    assert isinstance(ask.error, UnauthorizedError)


def test_merge_under_another_password_is_refused() -> None:
    log = GuardedLog()
    log.write(b"right", 1, 2)
    log.producer("merge", "run")
    log.register("merge", 9)
    copied = replace(staged(9), rows=200)
    for password, error in ((b"wrong", UnauthorizedError), (b"right", None)):
        merge = MergeRequest("merge", "run", log.items(), copied, password)
        machine = MergeMachine("flights", merge, token=token(log.new_number()))
        if error is not None:
            with pytest.raises(error):
                log.run(machine)
        else:
            log.run(machine)
    assert [item.ledger_id for item in log.items()] == [9]


def test_what_is_stored_is_neither_the_password_nor_the_same_in_two_logs() -> None:
    one, other = password_check(b"secret", SALT), password_check(b"secret", SALT[::-1])
    assert one != other
    assert one.startswith("hmac-sha256:")
    assert "secret" not in one + repr(CommitRequest("app", "run", 0, password=b"secret"))
    head, _ = new_head()
    check_password("flights", with_password(head, b"secret", SALT), b"secret")
    with pytest.raises(UnauthorizedError):
        check_password("flights", with_password(head, b"secret", SALT), b"Secret")


@pytest.mark.parametrize("stored", ["scrypt:00:11", "hmac-sha256:zz:11", "hmac-sha256", ""])
def test_scheme_of_a_later_version_is_an_error_that_says_so(stored: str) -> None:
    head = replace(new_head()[0], properties={PASSWORD_CHECK: stored})
    with pytest.raises(MetadataFormatError, match="later ledgerlog"):
        check_password("flights", head, b"secret")


def test_users_neither_set_nor_see_it_and_other_properties_leave_it() -> None:
    log = GuardedLog()
    log.write(b"right", 1)
    stored = log.head.value.properties[PASSWORD_CHECK]
    for change in ({"passwordCheck": "none"}, {"PASSWORDCHECK": None}):
        with pytest.raises(ConfigurationError, match="first write"):
            changed_properties(log.head.value.properties, change)
    changes = {"rollMs": "1000"}
    shown = log.run(PropertiesMachine("flights", changes, token=token(log.new_number())))
    assert shown == {"rollMs": "1000"}
    assert log.head.value.properties == {"rollMs": "1000", PASSWORD_CHECK: stored}
    assert LogProperties.from_mapping(log.head.value.properties).roll_ms == 1000
    assert PASSWORD_CHECK not in LogProperties().to_full_mapping()


async def test_job_with_another_password_is_refused_before_it_writes_and_when_it_commits(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    early = await log.begin(schema=SCHEMA, password=b"other")
    late = await write(log, early, "late")
    job = await log.begin(schema=SCHEMA, password=b"right")
    await log.commit(job, [await write(log, job, part) for part in ("xa", "xb")])
    with pytest.raises(UnauthorizedError):
        await log.begin(schema=SCHEMA)
    with pytest.raises(UnauthorizedError):
        await log.commit(early, [late])
    items = (await log.snapshot()).items
    read = [
        bytes(entry.payload)
        for item in items
        async for batch in log.read_range(
            item.ledger_id, item.first_entry_id, item.last_entry_id, password=b"right"
        )
        for entry in batch
        if entry.entry_id != item.index_entry_id
    ]
    assert read == of("x")


async def test_log_of_an_older_version_takes_the_password_of_its_ledgers(world: LogWorld) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    job = await log.begin(schema=SCHEMA, password=b"right")
    await log.commit(job, [await write(log, job, "x")])
    found = await logs.store.read_head(log.log_id)
    assert found is not None
    old = replace(found.value, properties={}, writer_features=())
    await logs.store.write_head(log.log_id, m.WriteHead(old.token, old, head_version=found.version))
    wrong = await log.begin(schema=SCHEMA)
    with pytest.raises(UnauthorizedError):
        await log.commit(wrong, [await write(log, wrong, "y")])
    right = await log.begin(schema=SCHEMA, password=b"right")
    await log.commit(right, [await write(log, right, "z")])
    with pytest.raises(UnauthorizedError):
        await log.begin(schema=SCHEMA)


async def test_restore_that_copies_nothing_needs_no_password(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    for name in "xy":
        job = await log.begin(schema=SCHEMA, password=b"right", mode=WriteMode.OVERWRITE)
        await log.commit(job, [await write(log, job, name)])
    await log.restore(1)
    newest = (await log.snapshot()).interval
    assert (newest.version, newest.rows) == (3, 30)
    with pytest.raises(UnauthorizedError):
        await log.begin(schema=SCHEMA)


async def test_restore_is_refused_under_another_password_than_the_logs(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    for name in "xyz":
        job = await log.begin(schema=SCHEMA)
        await log.commit(job, [await write(log, job, name)])
    merge = await log.begin(schema=SCHEMA)
    both = await write(log, merge, "xy", entries=6)
    await log.switch(merge, (await log.snapshot()).items[:2], both)

    async def copy(job: Any, part: Any) -> StagedRange:
        guarded = replace(job, password=b"other")
        return await write(log, guarded, "x", (part.end_offset - part.start_offset) // 10)

    with pytest.raises(UnauthorizedError):
        await log.restore(1, copy=copy)
    assert await payloads(log)
    assert (await log.state()).head.version == 3


@pytest.mark.parametrize("outcome", [MetadataOutcome.CONFLICT, MetadataOutcome.UNKNOWN])
def test_first_commit_that_has_to_try_again_still_finds_nothing_to_compare(
    outcome: MetadataOutcome,
) -> None:
    log = GuardedLog()
    log.producer("app", "run")
    log.register("app", 9)
    request = CommitRequest("app", "run", 0, (staged(9),), password=b"first")
    machine = CommitMachine("flights", request, token=token(1 << 8))
    (ask,) = machine.start()
    for _ in range(3):
        while not isinstance(ask, m.WriteHead):
            assert not isinstance(ask, m.Failed), ask
            (ask,) = machine.handle(log.reply(ask))
        (ask,) = machine.handle(m.Written(ask.request, outcome))
    while not isinstance(ask, m.Finished | m.Failed):
        (ask,) = machine.handle(log.reply(ask))
    assert isinstance(ask, m.Finished)
    check_password("flights", log.head.value, b"first")


async def test_job_with_a_longer_password_than_its_ledgers_may_have_is_refused_at_once(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    with pytest.raises(ConfigurationError, match="1,025 bytes, but the maximum is 1,024"):
        await log.begin(schema=SCHEMA, password=b"x" * 1_025)
    await log.begin(schema=SCHEMA, password=b"x" * 1_024)
