"""The host of the machine of a leader log.

It performs effects as calls, and passes answers to the machine as events. Events pass through a
queue, and each request is answered once. The leader handles the machine's indications, and stores
the bytes of the entries that the machine appends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.client.host.event_queue import EventQueue
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.log.host import LogHost, outcome_of
from ledgerlog_spark.log.leader.ledger_writer import LeaderWriter
from ledgerlog_spark.log.reading.open_ends import read_one
from ledgerlog_spark.metadata.tree import CancelWatch, NodeMissingError
from ledgerlog_spark.protocol.leader.entry import decode_entry_header
from ledgerlog_spark.protocol.leader.leader import LeaderLog
from ledgerlog_spark.protocol.leader.messages import (
    AppendEntry,
    CandidateRead,
    CandidatesJoined,
    CloseAnswered,
    CloseLedger,
    CreateLedger,
    HeadChanged,
    JoinCandidates,
    LeaderEvent,
    LeaderIndication,
    LedgerCreated,
    LedgerEnd,
    LedgerSealed,
    ReadCandidate,
    RecoverLedger,
    SealLedger,
    SessionReplaced,
)
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome, Payload, Start, StartTimer
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.seal import LOG_ID_KEY
from ledgerlog_spark.waits import forever

EVENT_TEXT_LENGTH_MAX = 500
_STORE_REQUESTS = (m.Sync, m.ReadHead, m.ReadPages, m.WritePages, m.WriteHead)


class LeaderHost(EventQueue[LeaderEvent]):
    """Hosts one machine. All methods run on the event loop's thread."""

    def __init__(
        self,
        machine: LeaderLog,
        log: LogHost,
        *,
        entry_of: Callable[[AppendEntry], Payload],
        on_indication: Callable[[LeaderIndication], None],
        on_crash: Callable[[LedgerLogError], None],
        send_appends: Callable[[], None],
    ) -> None:
        """Create a host, without calling the machine. Only this host may call `machine.handle`.

        `log` performs the machine's requests for the log's nodes. `entry_of` returns the bytes of
        an entry, which are the same for each request.
        """
        super().__init__(
            machine,
            subject=f"the leader of log {machine.log!r}",
            about={"log": machine.log},
            random=log.random,
            on_crash=on_crash,
            on_settled=self._settle,
        )
        self._log = log
        self._entry_of = entry_of
        self._on_indication = on_indication
        self._send_appends = send_appends
        self._written: dict[int, LeaderWriter] = {}
        self._ordered: LeaderWriter | None = None
        self._candidates = log.store.candidates(log.log_id)
        self._claim: str | None = None  # the claim of this client's candidate node, if there is one
        self._watches: list[CancelWatch] = []
        self._requests: dict[type, Callable[[Any], Coroutine[Any, Any, Any]]] = {
            **dict.fromkeys(_STORE_REQUESTS, log.perform),
            m.DropLedger: self._drop,
            CreateLedger: self._create,
            SealLedger: self._seal,
            CloseLedger: self._close,
            RecoverLedger: self._recover,
            JoinCandidates: self._join,
            ReadCandidate: self._look_for,
        }

    def start(self) -> None:
        """Start the machine.

        The head is watched before that, so that no change of the head is missed.
        """
        store = self._log.store
        self._watches = [
            store.watch_head(self._log.log_id, lambda: self.post(HeadChanged())),
            store.watch_session(lambda: self.post(SessionReplaced())),
        ]
        self.post(Start())

    def stop(self) -> None:
        """Stop the machine, and write no more entries. No ledger is closed or deleted."""
        super().stop()
        self.retire()

    def retire(self) -> None:
        """Stop writing, and delete this client's candidate node.

        After that, the machine no longer leads. If the creation of a ledger is still pending, the
        machine deletes this ledger after the creation.
        """
        self._cancel_timers()
        for cancel in self._watches:
            cancel()
        self._watches.clear()
        claim, self._claim = self._claim, None
        if claim is not None:
            self._spawn(self._leave(claim))
        for ledger in self._written.values():
            ledger.abandon()
        self._written.clear()

    async def finish(self) -> None:
        """Wait until all work in the background has ended, such as the deletion of a ledger."""
        while self._tasks:
            await forever(asyncio.wait(self._tasks), "requests end by their deadlines")

    def _perform(self, effect: Any) -> None:
        kind = type(effect)
        if kind is AppendEntry:
            self._ordered = self._written[effect.ledger_id]
            self._ordered.order(self._entry_of(effect))
        elif kind in self._requests:
            self._spawn(self._answer(effect))
        elif kind is StartTimer:
            self._start_timer(effect)
        else:
            self._on_indication(effect)

    def _text(self, event: object) -> str:
        return str(event)[:EVENT_TEXT_LENGTH_MAX]

    def _settle(self) -> None:
        self._send_appends()
        ordered, self._ordered = self._ordered, None
        if ordered is not None:
            ordered.send_now()

    async def _answer(self, effect: Any) -> None:
        self.post(await self._requests[type(effect)](effect))

    # --- ledgers ---

    async def _create(self, effect: CreateLedger) -> LedgerCreated:
        listener = LeaderWriter(self.post)
        properties = effect.properties
        try:
            handle = await self._log.ledgers.create_registered_ledger(
                partial(self._log.store.producers.make_ledger, self._log.log_id),
                LedgerSpec(
                    quorum=properties.quorum,
                    digest_type=properties.digest_type,
                    custom_metadata={LOG_ID_KEY: self._log.log_id.encode()},
                    explicit_lac=True,
                    changes_ensemble=properties.changes_ensemble,
                ),
                listener=listener,
                on_failed=listener.set_exception,
            )
        except LedgerLogError as error:
            return LedgerCreated(effect.request, error=error)
        listener.handle = handle
        if self.is_stopped:
            listener.abandon()
        else:
            self._written[handle.id] = listener
        return LedgerCreated(effect.request, handle.id)

    async def _seal(self, effect: SealLedger) -> LedgerSealed:
        try:
            metadata = await self._log.ledgers.seal(effect.ledger_id)
            last_entry_id = metadata.last_entry_id
            if last_entry_id < 0:
                return LedgerSealed(effect.request)
            handle = await self._log.ledgers.open_ledger(effect.ledger_id, is_listed=True)
            try:
                first = decode_entry_header((await read_one(handle, 0)).payload)
                last = decode_entry_header((await read_one(handle, last_entry_id)).payload)
            finally:
                await handle.aclose()
        except LedgerLogError as error:
            return LedgerSealed(effect.request, error=error)
        end = LedgerEnd(
            last_entry_id=last_entry_id,
            size_bytes=metadata.length,
            first_offset=first.first_offset,
            end_offset=last.end_offset,
            append_time_ms=last.append_time_ms,
        )
        return LedgerSealed(effect.request, end)

    def _close(self, effect: CloseLedger) -> Coroutine[Any, Any, Any]:
        # Read `_written` now, because it may no longer contain the ledger when the task begins.
        return self._closed(effect, self._written[effect.ledger_id])

    async def _closed(self, effect: CloseLedger, ledger: LeaderWriter) -> Any:
        answer = await ledger.close(effect.request)
        if answer.error is None:
            self._written.pop(effect.ledger_id, None)
        return answer

    async def _drop(self, effect: m.DropLedger) -> Any:
        ledger = self._written.pop(effect.ledger_id, None)
        if ledger is not None:
            ledger.abandon()
        return await self._log.perform(effect)

    async def _recover(self, effect: RecoverLedger) -> CloseAnswered:
        try:
            metadata = await self._log.ledgers.seal(
                effect.ledger_id, floor_entry_id=effect.floor_entry_id
            )
        except LedgerLogError as error:
            return CloseAnswered(effect.request, error=error)
        ledger = self._written.pop(effect.ledger_id, None)
        if ledger is not None:
            ledger.abandon()
        return CloseAnswered(effect.request, metadata.last_entry_id, metadata.length)

    # --- candidates ---

    async def _join(self, effect: JoinCandidates) -> CandidatesJoined:
        self._claim = effect.claim
        try:
            outcome, _ = await outcome_of(self._candidates.join(effect.claim))
        except NodeMissingError:
            outcome = MetadataOutcome.GONE
        if not self._watches:  # the leader ended during the join
            await self._leave(effect.claim)
        return CandidatesJoined(effect.request, outcome)

    async def _leave(self, claim: str) -> None:
        """Delete the candidate node.

        If the deletion fails, the node is deleted when the session ends.
        """
        with contextlib.suppress(LedgerLogError):
            await self._candidates.leave(claim)

    async def _look_for(self, effect: ReadCandidate) -> CandidateRead:
        outcome, look = await outcome_of(self._candidates.look(effect.claim))
        if look is None:
            return CandidateRead(effect.request, outcome)
        return CandidateRead(
            effect.request, outcome, look.is_there, look.session_id, look.session_timeout_ms
        )
