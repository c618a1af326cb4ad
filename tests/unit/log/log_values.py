"""Values for tests of logs."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest, created
from ledgerlog_spark.protocol.log.read.versions import ListingMachine
from ledgerlog_spark.protocol.log.state.codec import decode_page
from ledgerlog_spark.protocol.log.state.records import (
    LogContent,
    LogHead,
    LogKind,
    ProducerRecord,
    StagedRange,
)
from ledgerlog_spark.protocol.log.state.statistics import ColumnStatistics, encode_statistics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgerlog_spark.protocol.log.machine import LogMachine
    from ledgerlog_spark.protocol.log.state.pages import PageRequest
    from ledgerlog_spark.protocol.log.state.rows import RecordKind


@lru_cache(maxsize=300)
def decoded(kind: RecordKind[Any], data: bytes) -> tuple[Any, ...]:
    """The records of a page, decoded only once, because tests read the same pages many times."""
    return decode_page(kind, data)


def token(number: int) -> str:
    return f"{number:032x}"


def staged(ledger_id: int, rows: int = 100, statistics: bytes = b"") -> StagedRange:
    return StagedRange(
        ledger_id=ledger_id,
        first_entry_id=1,
        last_entry_id=6,
        index_entry_id=6,
        rows=rows,
        size_bytes=rows * 41 + ledger_id % 977,
        statistics=statistics,
    )


@lru_cache(maxsize=1_000)
def full_statistics(number: int) -> bytes:
    columns = [
        ColumnStatistics(c, 0, f"{number:016}-{c:010}-low", f"{number:016}-{c:010}-top")
        for c in range(32)
    ]
    return encode_statistics(columns, size_bytes_max=1024)


def new_head(
    properties: Mapping[str, str] | None = None, schema: bytes = b""
) -> tuple[LogHead, tuple[bytes, ...]]:
    return created(
        log_id=token(1),
        name="flights",
        kind=LogKind.TRANSACTIONAL,
        content=LogContent.ROWS,
        now_ms=1_000,
        token=token(1),
        schema=schema,
        properties=properties,
    )


class OneLog:
    """A log's records in plain variables. Every request succeeds immediately, and none is lost.

    It counts the writes, so that tests can check the cost of a commit.
    """

    def __init__(self, head: LogHead | None = None, pages: tuple[bytes, ...] = ()) -> None:
        from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
        from ledgerlog_spark.protocol.log import messages as m

        self._m, self._ok = m, MetadataOutcome
        made, made_pages = new_head() if head is None else (head, pages)
        self.head = Versioned(made, Version(1, 0))
        self.pages = {(made.token, n): page for n, page in enumerate(made_pages)}
        self.producers: dict[str, Versioned[ProducerRecord]] = {}
        self.registered: dict[str, tuple[int, ...]] = {}
        self.now_ms = 2_000
        self.pages_written: list[int] = []
        self.pages_read = 0
        self.heads_written = 0
        self.unlisted: list[int] = []
        self._number = 1

    def run(self, machine: LogMachine[Any]) -> Any:
        (effect,) = machine.start()
        while True:
            if isinstance(effect, self._m.Finished):
                return effect.result
            if isinstance(effect, self._m.Failed):
                raise effect.error
            (effect,) = machine.handle(self.reply(effect))

    def reply(self, ask: Any) -> Any:  # noqa: PLR0911
        m, outcome = self._m, self._ok
        match ask:
            case m.Sync():
                return m.Synced(ask.request, outcome.OK)
            case m.ReadHead():
                return m.HeadRead(ask.request, outcome.OK, self.head, self.time(ask))
            case m.ReadProducer():
                found = self.producers.get(ask.app)
                state = outcome.OK if found else outcome.GONE
                return m.ProducerRead(ask.request, state, found, self.time(ask))
            case m.ReadRegistered():
                ids = self.registered.get(ask.app, ())
                return m.RegisteredRead(ask.request, outcome.OK, ids)
            case m.ReadPages():
                self.pages_read += len(ask.pages)
                pages = tuple(map(self.page, ask.pages))
                return m.PagesRead(ask.request, outcome.OK, pages)
            case m.WritePages():
                self.pages_written += map(len, ask.pages)
                self.pages |= {(ask.token, n): page for n, page in enumerate(ask.pages)}
                return m.PagesWritten(ask.request, outcome.OK, Version(1, 0))
            case m.WriteHead():
                assert ask.head_version == self.head.version
                self.heads_written += 1
                self.unlisted += ask.unlisted
                self.head = Versioned(ask.head, _next(self.head.version))
                if ask.app is not None:
                    assert ask.producer_version == self.producers[ask.app].version
                    version = _next(ask.producer_version)
                    self.producers[ask.app] = Versioned(ask.producer, version)
                return m.Written(ask.request, outcome.OK, self.head.version)
            case m.WriteProducer():
                found = self.producers.get(ask.app)
                assert (found.version if found else None) == ask.version
                version = _next(ask.version) if ask.version else Version(1, 0)
                self.producers[ask.app] = Versioned(ask.producer, version)
                return m.Written(ask.request, outcome.OK, version)
        raise AssertionError(ask)

    def time(self, ask: Any) -> int:
        return 0 if ask.time is self._m.TimeNeeded.NONE else self.now_ms

    def page(self, page: PageRequest) -> tuple[Any, ...]:
        return decoded(page.kind, self.pages[page.ref.token, page.ref.number])

    def commit(self, *ranges: StagedRange, **how: Any) -> Any:
        """Commit these ranges with a new producer, and return the result."""
        app = f"app-{len(self.producers)}"
        self.producer(app, "run")
        self.register(app, *(r.ledger_id for r in ranges))
        version = self.head.value.version
        request = CommitRequest(app, "run", 0, ranges, planned_version=version, **how)
        self.now_ms += 10
        return self.run(CommitMachine("flights", request, token=token(self.new_number())))

    def new_number(self) -> int:
        """A number for a token. The tokens differ in their first digits."""
        self._number += 1
        return self._number << 16

    def items(self) -> tuple[Any, ...]:
        """All listed items."""
        return tuple(self.run(ListingMachine("flights")))

    def producer(self, app: str, run: str) -> None:
        self.producers[app] = Versioned(ProducerRecord(epoch=1, runs=(run,)), Version(1, 0))

    def register(self, app: str, *ledger_ids: int) -> None:
        self.registered[app] = (*self.registered.get(app, ()), *ledger_ids)


def _next(version: Version) -> Version:
    return replace(version, number=version.number + 1)
