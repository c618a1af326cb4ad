"""The operations of the v2 data plane: a frame's request to storage, its outcome as an answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from bookie_server.core import requests as storage_requests
from bookie_server.service.auth import answer_to_auth
from bookie_server.service.in_flight import REQUEST_OVERHEAD_BYTES, ReadReserve
from bookie_server.service.v2_connection import V2Connection
from bookie_server.service.v2_requests import HIGH_PRIORITY, RECOVERY_ADD, refusal_of
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import (
    encode_add_answer,
    encode_add_run_answer,
    encode_batch_read_answer,
    encode_read_answer_head,
    encode_refusal,
)
from ledgerlog_spark.wire.requests import (
    AddRequest,
    AddRunRequest,
    AuthMessage,
    BatchReadRequest,
    ReadRequest,
    RefusedRequest,
    TellLacRequest,
    decode_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bookie_server.service.v2_shared import V2Shared
    from ledgerlog_spark.wire.requests import Request

GATHERED_BYTES_MIN: Final = 8_192
"""Buffers of this size on average are cheaper to gather in the kernel than to copy here."""


class V2Operations(V2Connection):
    """Carries out what one peer asks."""

    __slots__ = ("_read_reserve",)

    def __init__(
        self,
        shared: V2Shared,
        admit: Callable[[V2Connection], bool],
        left: Callable[[V2Connection], None],
    ) -> None:
        """See `V2Connection`."""
        super().__init__(shared, admit, left)
        self._read_reserve = ReadReserve()

    def _handle(self, body: memoryview) -> None:
        try:
            request = decode_request(body)
        except WireFormatError as error:
            self._close_on_bad_bytes(error)
            return
        in_flight = self._shared.in_flight
        if in_flight.size_bytes >= in_flight.hard_size_bytes_max:
            self._refuse(request, Code.BUSY)
        elif type(request) is AddRequest:
            self._add(request, len(body))
        elif type(request) is AddRunRequest:
            self._add_run(request, len(body))
        elif type(request) is ReadRequest:
            self._read(request)
        elif type(request) is BatchReadRequest:
            self._read_batch(request)
        elif type(request) is TellLacRequest:
            self._shared.storage.tell_lac(*request[2:])
        elif type(request) is RefusedRequest:
            self._shared.counters.bad_frames += 1
            self._answer(request.code, encode_refusal(request), 0)
        else:
            assert type(request) is AuthMessage
            self._auth(request)

    def _add(self, request: AddRequest, size_bytes: int) -> None:
        version, flags, ledger_id, entry_id, master_key, entry = request
        counters = self._shared.counters
        counters.add_requests += 1
        counters.add_entries += 1
        counters.add_bytes += size_bytes
        size_bytes += REQUEST_OVERHEAD_BYTES
        self._take(size_bytes)
        is_recovery = bool(flags & RECOVERY_ADD)
        counters.recovery_requests += is_recovery
        self._shared.storage.add(
            storage_requests.AddRequest(
                ledger_id, (entry_id,), (len(entry),), entry, master_key, is_recovery
            ),
            partial(self._added, version, ledger_id, entry_id, size_bytes),
        )

    def _added(
        self, version: int, ledger_id: int, entry_id: int, size_bytes: int, code: Code
    ) -> None:
        answer = encode_add_answer(code, ledger_id, entry_id, version=version)
        self._answer(code, answer, size_bytes)

    def _add_run(self, request: AddRunRequest, size_bytes: int) -> None:
        counters = self._shared.counters
        counters.add_requests += 1
        counters.add_entries += len(request.lengths)
        counters.add_bytes += size_bytes
        size_bytes += REQUEST_OVERHEAD_BYTES
        self._take(size_bytes)
        is_recovery = bool(request.flags & RECOVERY_ADD)
        counters.recovery_requests += is_recovery
        self._shared.storage.add(
            storage_requests.AddRequest(
                request.ledger_id,
                request.entry_ids,
                request.lengths,
                request.body,
                request.master_key,
                is_recovery,
            ),
            partial(
                self._run_added,
                request.version,
                request.ledger_id,
                request.entry_ids[0],
                request.request_id,
                size_bytes,
            ),
        )

    def _run_added(
        self,
        version: int,
        ledger_id: int,
        first_entry_id: int,
        request_id: int,
        size_bytes: int,
        code: Code,
    ) -> None:
        answer = encode_add_run_answer(code, ledger_id, first_entry_id, request_id, version=version)
        self._answer(code, answer, size_bytes)

    def _read(self, request: ReadRequest) -> None:
        version, flags, ledger_id, entry_id, master_key = request
        counters = self._shared.counters
        counters.read_requests += 1
        counters.fence_requests += master_key is not None
        reserve = self._read_reserve.size_bytes
        self._take(reserve)
        self._shared.storage.read(
            storage_requests.ReadRequest(
                ledger_id, entry_id, master_key, bool(flags & HIGH_PRIORITY)
            ),
            partial(self._entry_read, version, ledger_id, entry_id, reserve),
        )

    def _entry_read(
        self,
        version: int,
        ledger_id: int,
        entry_id: int,
        reserve: int,
        code: Code,
        entry: bytes | None,
    ) -> None:
        size_bytes = 0 if entry is None else len(entry)
        self._read_reserve.learn(size_bytes)
        head = encode_read_answer_head(code, ledger_id, entry_id, size_bytes, version=version)
        if entry is not None:
            counters = self._shared.counters
            counters.read_entries += 1
            counters.read_bytes += size_bytes
        self._answer(code, head, reserve)
        if entry is not None:
            self._append(entry)

    def _read_batch(self, request: BatchReadRequest) -> None:
        counters = self._shared.counters
        counters.read_requests += 1
        counters.fence_requests += request.master_key is not None
        count_max = request.count_max if request.count_max > 0 else self._shared.batch_count_max
        size_bytes_max = self._shared.batch_size_bytes_max
        if request.size_bytes_max > 0:
            size_bytes_max = min(size_bytes_max, request.size_bytes_max)
        reserve = size_bytes_max + REQUEST_OVERHEAD_BYTES
        self._take(reserve)
        self._shared.storage.read_batch(
            storage_requests.BatchReadRequest(
                request.ledger_id,
                request.first_entry_id,
                min(count_max, self._shared.batch_count_max),
                size_bytes_max,
                request.master_key,
            ),
            partial(self._batch_read, request, reserve),
        )

    def _batch_read(
        self, request: BatchReadRequest, reserve: int, code: Code, entries: Sequence[bytes]
    ) -> None:
        buffers = encode_batch_read_answer(
            code,
            request.ledger_id,
            request.first_entry_id,
            request.request_id,
            entries,
            version=request.version,
        )
        size_bytes = sum(map(len, entries))
        counters = self._shared.counters
        counters.read_entries += len(entries)
        counters.read_bytes += size_bytes
        if size_bytes > len(buffers) * GATHERED_BYTES_MIN:
            self._answer(code, buffers[0], reserve)
            for buffer in buffers[1:]:
                self._append(buffer)
        else:
            self._answer(code, b"".join(buffers), reserve)

    def _auth(self, request: AuthMessage) -> None:
        self._shared.counters.auth_requests += 1
        answer = answer_to_auth(request)
        if answer is None:
            self._close_on_bad_bytes(WireFormatError("an AUTH frame without a message"))
            return
        self._append(answer)

    def _refuse(self, request: Request, code: Code) -> None:
        if isinstance(request, TellLacRequest):
            return
        if isinstance(request, AuthMessage):
            self._auth(request)
            return
        refusal = refusal_of(request, code)
        self._answer(refusal.code, encode_refusal(refusal), 0)
