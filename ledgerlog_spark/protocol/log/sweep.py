"""Deletes pages and ledgers that no version names (LOGS.md#W1-W6).

All machines of this module follow one rule. First they change a node that commits check, so that
each commit that could still name the page or ledger fails. Then they read whether the log names the
page or ledger. If not, they delete it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.machine import LogMachine, Steps
from ledgerlog_spark.protocol.log.messages import (
    DeletePages,
    DropLedger,
    Finished,
    ReadProducer,
    ReadRegistrations,
    ReadStaged,
    TouchPages,
    WriteProducer,
)
from ledgerlog_spark.protocol.log.read.versions import listed_ledgers, listing_of
from ledgerlog_spark.protocol.log.state.pages import end_key
from ledgerlog_spark.protocol.log.state.records import LogHead, Paged
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, SCHEMAS, RecordKind
from ledgerlog_spark.protocol.log.state.walk import ListWalk
from ledgerlog_spark.protocol.log.transaction import HeadTransaction, Plan, rewritten

STEP_LEDGERS_MAX = 1_000
"""Maximum number of ledgers in one transaction. The size of such a transaction is far below the
store's limit of 1 MiB."""


class PagesSweep(LogMachine[tuple[str, ...]]):
    """Deletes the pages of the given tokens, except pages that the head names (LOGS.md#W2).

    Ends with `Finished(tuple[str, ...])`, the tokens whose pages were deleted. If `TouchPages` does
    not succeed for a token, the pages of this token stay until a later sweep.
    """

    def __init__(self, log: str, tokens: tuple[str, ...]) -> None:
        super().__init__(log)
        self._tokens = tokens

    def _run(self) -> Steps[tuple[str, ...]]:
        touched = yield from self._touch()
        named = yield from self._look(self._named)
        deleted = []
        for token in touched:
            kept = tuple(sorted(named.get(token, ())))
            reply = yield from self._reply_to(DeletePages(token, kept))
            if reply.outcome is MetadataOutcome.OK:
                deleted.append(token)
        return tuple(deleted)

    def _touch(self) -> Steps[list[str]]:
        """Send `TouchPages` for each token.

        Return the tokens whose pages no pending commit can name any more.
        """
        touched = []
        for token in self._tokens:
            reply = yield from self._reply_to(TouchPages(token))
            if reply.outcome is MetadataOutcome.OK:
                touched.append(token)
        return touched

    def _named(self, head: LogHead) -> Steps[dict[str, set[int]]]:
        """Return the pages that the head names, by token."""
        sequences: list[tuple[RecordKind[Any], Paged[Any]]] = [
            (ITEMS, head.items),
            (HISTORY, head.history),
            (SCHEMAS, head.schemas),
        ]
        named: dict[str, set[int]] = {}
        for kind, paged in sequences:
            refs = yield from self._refs(ListWalk(kind, paged, 0, end_key(kind, paged)))
            for ref in (*paged.index, *refs):
                named.setdefault(ref.token, set()).add(ref.number)
        return named


@dataclass(frozen=True, slots=True)
class Deregistered:
    """The result of one step of `StagedSweep`."""

    unlisted: tuple[int, ...] = ()  # ledgers that got a mark, because the log does not list them
    released: tuple[int, ...] = ()  # ledgers that the log lists
    is_complete: bool = True  # no other ledger was due; always False after a concurrent change


class StagedSweep(LogMachine[Deregistered]):
    """Deletes the expired registrations of one producer (LOGS.md#W3).

    The producer record is read before the head, and is replaced at the version that was read. So
    this sweep fails if there is a commit between the read and the replacement.
    """

    def __init__(self, log: str, *, app: str, staging_ttl_ms: int) -> None:
        super().__init__(log)
        self._app = app
        self._staging_ttl_ms = staging_ttl_ms

    def _run(self) -> Steps[Deregistered]:
        producer = (yield from self._read(ReadProducer(self._app))).producer
        if producer is None:
            return Deregistered()
        reply = yield from self._read(ReadStaged(self._app))
        at_ms = reply.registered_ms
        due = [i for i in at_ms if reply.now_ms - at_ms[i] > self._staging_ttl_ms]
        if not due:
            return Deregistered()
        listed = yield from self._look(self._listed)
        some = due[:STEP_LEDGERS_MAX]
        step = Deregistered(
            unlisted=tuple(ledger for ledger in some if ledger not in listed),
            released=tuple(ledger for ledger in some if ledger in listed),
            is_complete=len(some) == len(due),
        )
        write = WriteProducer(
            app=self._app,
            producer=producer.value,
            version=producer.version,
            deregistered=step.unlisted,
            released=step.released,
        )
        written = yield from self._reply_to(write)
        return step if written.outcome is MetadataOutcome.OK else Deregistered(is_complete=False)

    def _listed(self, head: LogHead) -> Steps[set[int]]:
        return listed_ledgers(head, (yield from self._walk(listing_of(head))))


class LedgerSweep(LogMachine[tuple[int, ...]]):
    """Deletes ledgers whose marks are old enough, unless the log lists them (LOGS.md#W4).

    The list is read twice. Before the second read, the registrations of the ledgers are deleted. So
    no later commit can list them, and their marks are not renewed any more. Ends with
    `Finished(tuple[int, ...])`, the deleted ledgers.
    """

    def __init__(self, log: str, marked_ms: Mapping[int, int]) -> None:
        """`marked_ms` maps each due ledger, at most 1,000, to the time of its mark."""
        super().__init__(log)
        self._marked_ms = marked_ms
        self._ledger_ids = tuple(marked_ms)
        self.is_crossed = False  # a producer changed, so nothing was deleted, and a retry is needed

    def _run(self) -> Steps[tuple[int, ...]]:
        yield from self._look(self._keep_unlisted)
        if not self._ledger_ids:
            return ()
        yield from self._deregister()
        if self.is_crossed:
            return ()
        yield from self._look(self._keep_unlisted)
        deleted = []
        for ledger_id in self._ledger_ids:
            reply = yield from self._reply_to(DropLedger(ledger_id, self._marked_ms[ledger_id]))
            if reply.outcome is MetadataOutcome.OK:
                deleted.append(ledger_id)
        return tuple(deleted)

    def _keep_unlisted(self, head: LogHead) -> Steps[None]:
        """Remove the ledgers that the head lists from the ledgers to delete."""
        listed = listed_ledgers(head, (yield from self._walk(listing_of(head))))
        self._ledger_ids = tuple(ledger for ledger in self._ledger_ids if ledger not in listed)

    def _deregister(self) -> Steps[None]:
        """Delete the ledgers' registrations, so that each pending commit of these ledgers fails."""
        reply = yield from self._reply_to(ReadRegistrations(self._ledger_ids))
        if reply.outcome is not MetadataOutcome.OK:
            raise self._read_error(reply.outcome)
        for app, found, ledger_ids in reply.registrations:
            write = WriteProducer(app, found.value, found.version, deregistered=ledger_ids)
            if (yield from self._reply_to(write)).outcome is not MetadataOutcome.OK:
                self.is_crossed = True
                return


class OrphansMachine(HeadTransaction[tuple[int, ...]]):
    """Marks orphans, ledgers that the log does not list, so that they are deleted (LOGS.md#U19).

    Ends with `Finished(tuple[int, ...])`, those of the given ledgers that the log does not list.
    They are marked as unlisted, so they are deleted after `deletedRetentionMs`. Fails with
    `LogNotFoundError`, `ConcurrentCommitError`, or the store's errors.
    """

    def __init__(self, log: str, ledger_ids: tuple[int, ...], *, token: str) -> None:
        """`ledger_ids` has at most 1,000 ids. No producer has registered these ledgers."""
        super().__init__(log, token=token)
        self._ledger_ids = ledger_ids

    def _plan(self, head: LogHead) -> Plan[tuple[int, ...]]:
        listed = listed_ledgers(head, (yield from self._walk(listing_of(head))))
        unlisted = tuple(ledger for ledger in self._ledger_ids if ledger not in listed)
        if not unlisted:
            return Finished(())
        # This change writes the head, so every pending change of the head fails.
        return rewritten(head, lambda _: unlisted, unlisted=unlisted)
