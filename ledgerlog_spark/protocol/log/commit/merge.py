"""The merge switch replaces many small ranges with one range of a large ledger (LOGS.md#U13-U16).

Before the switch, the rows are copied into a ledger that is registered under a separate producer.
The switch is one transaction, which writes the head and the producer record. A switch changes no
offset of a row and creates no version, so every version has the same rows before and after the
switch. The switch succeeds only if the log still lists exactly the copied ranges. Readers that
planned their reads before the switch continue to read the old ledgers. These ledgers are marked as
unlisted, and stay for `deletedRetentionMs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ledgerlog_spark.errors import ConcurrentCommitError, LocalProtocolError
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine, committed
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest, listed
from ledgerlog_spark.protocol.log.commit.result import CommitResult
from ledgerlog_spark.protocol.log.read.versions import listing_of
from ledgerlog_spark.protocol.log.state.pages import Loaded, PageWriter, replace_run
from ledgerlog_spark.protocol.log.state.records import Item, LogHead, StagedRange
from ledgerlog_spark.protocol.log.state.rows import ITEMS
from ledgerlog_spark.protocol.log.transaction import HeadChange, Plan


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """The ranges to replace, as the log listed them before the copy, and the range of the copies.

    The range of the copies has the rows of all replaced ranges.
    """

    app: str
    run: str
    replaced: tuple[Item, ...]
    staged: StagedRange
    password: bytes = field(repr=False, default=b"")

    def __post_init__(self) -> None:
        following = zip(self.replaced, self.replaced[1:], strict=False)
        gaps = [one for one, other in following if one.end_offset != other.first_offset]
        schemas = {item.schema_id for item in self.replaced}
        rows = sum(item.rows for item in self.replaced)
        if gaps or len(schemas) != 1 or rows != self.staged.rows:
            raise LocalProtocolError(
                f"ranges of {rows} rows in {len(schemas)} schemas with {len(gaps)} gaps cannot be "
                f"replaced by one range of {self.staged.rows} rows",
                staged=self.staged,
            )


class MergeMachine(CommitMachine):
    """Replaces the copied ranges with the merged range in the log's list.

    Ends with `Finished(CommitResult)`, or fails with the errors of a commit. The version in the
    result is the newest version of the log, which the merge did not create.
    `ConcurrentCommitError` means that the log does not list these ranges any more, because they
    were truncated, expired, or merged by another process (LOGS.md#U15).
    """

    def __init__(self, log: str, merge: MergeRequest, *, token: str) -> None:
        request = CommitRequest(
            app=merge.app,
            run=merge.run,
            batch_id=0,
            ranges=(merge.staged,),
            password=merge.password,
        )
        super().__init__(log, request, token=token)
        self._merge = merge

    def _plan(self, head: LogHead) -> Plan[CommitResult]:
        listing = listing_of(head)
        items = yield from self._walk(listing)
        replaced = self._found(items)
        first, end = replaced[0].first_offset, replaced[-1].end_offset
        others = {i.ledger_id for i in items if i.end_offset <= first or i.first_offset >= end}
        ledger_ids = dict.fromkeys(item.ledger_id for item in replaced)
        merged = self._merged(head, replaced)

        def build(token: str, _: Loaded) -> tuple[LogHead, tuple[bytes, ...]]:
            """Return the head in which one item replaces the items of the copied ranges."""
            writer = PageWriter(token)
            by = (merged,)
            items = replace_run(ITEMS, head.items, replaced, by, writer, listing.loaded)
            return replace(head, token=token, items=items), tuple(writer.pages)

        unlisted = tuple(ledger for ledger in ledger_ids if ledger not in others)
        return HeadChange(build, committed, unlisted=unlisted)

    def _found(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Return the items to replace. Raise an error if the log does not list them any more."""
        wanted = self._merge.replaced
        first, end = wanted[0].first_offset, wanted[-1].end_offset
        found = tuple(i for i in items if i.end_offset > first and i.first_offset < end)
        if found != wanted:
            raise ConcurrentCommitError(
                f"log {self.log!r} no longer lists the {len(wanted)} ranges from offset {first} to "
                f"{end} that were merged: they were truncated, or another process merged them; "
                "nothing was changed",
                log=self.log,
                first_offset=first,
                end_offset=end,
                retriable=True,
            )
        return found

    def _merged(self, head: LogHead, replaced: tuple[Item, ...]) -> Item:
        newest_ms = max(item.newest_ms for item in replaced)
        (item,) = listed(head, (self._merge.staged,), replaced[0].schema_id, newest_ms)
        return replace(item, first_offset=replaced[0].first_offset)
