"""Carries out v2 operations: turns frames into requests, and results into answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Final

from bookie_server.config import ANSWERS_RESERVE_BYTES
from bookie_server.core.record_codec import CHUNK_SIZE
from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead, StoredSliceRead
from bookie_server.service.limits.budget import Share
from bookie_server.service.limits.lanes import REQUEST_OVERHEAD_BYTES, WRITE_COST_BYTES
from bookie_server.service.logging import get_logger
from bookie_server.service.v2.receive_memory import (
    ADDS,
    HIGH_PRIORITY,
    OPCODE_OFFSET,
    RECOVERY_ADD,
    buffer_of,
    is_control,
)
from bookie_server.service.v2.shared import BATCH_COUNT_MAX
from bookie_server.service.v2.together import GATHERED_BYTES_MIN, READ, TogetherConnection
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import (
    encode_add_answer,
    encode_add_run_answer,
    encode_batch_read_answer,
    encode_read_answer_head,
    encode_refusal,
)
from ledgerlog_spark.wire.frames import ReceiveBuffer
from ledgerlog_spark.wire.opcodes import Opcode
from ledgerlog_spark.wire.requests import (
    AddRequest,
    AddRunRequest,
    AuthMessage,
    BatchReadRequest,
    ReadRequest,
    RefusedRequest,
    TellLacRequest,
    decode_request,
    encode_auth,
)
from ledgerlog_spark.wire.slice_requests import FRAME_SIZE_BYTES_MAX as SLICES_FRAME_SIZE_BYTES_MAX
from ledgerlog_spark.wire.slice_requests import SliceReadRequest
from ledgerlog_spark.wire.version_3 import FIRST_BYTE, refusal_of_version_3

_logger = get_logger("v2")

READ_SLICES: Final = int(Opcode.READ_SLICES)
BATCHES: Final = frozenset((int(Opcode.BATCH_READ), READ_SLICES))
"""Operations whose answer may have fewer entries than requested. The requests of these operations
have the size limit at the same offset."""
SLICES_COST_FACTOR: Final = 16
"""Maximum memory of a decoded request for slices, in bytes for each byte of its frame."""
SLICES_ANSWER_BYTES_MIN: Final = ANSWERS_RESERVE_BYTES // 2
"""Number of bytes. A request for slices waits until there is room for an answer of this size, and
for the memory of the request (`slices_cost`)."""
_BATCH_SIZE: Final = Struct(">q")
_BATCH_SIZE_OFFSET: Final = 32
_PLUGIN_NAME: Final = b"AuthDisabledPlugin"
_NAME_TAG: Final = 0x0A
_PAYLOAD_TAG: Final = 0x12
_AUTH_DISABLED: Final = (
    bytes([_NAME_TAG, len(_PLUGIN_NAME)]) + _PLUGIN_NAME + bytes([_PAYLOAD_TAG, 0])
)
"""An encoded AuthMessage that names the plugin `AuthDisabledPlugin`. Its fields are `1: plugin name
(string), 2: payload (bytes)`. Apache's bookies name this plugin when authentication is off, and
Apache's clients then continue."""


class V2Operations(TogetherConnection):
    """Carries out the requests of one peer."""

    def _demand(self, body: memoryview) -> tuple[Share, int]:
        opcode = body[OPCODE_OFFSET]
        if opcode in ADDS:
            if is_control(body):
                # The memory in which the entries were received is already counted.
                return self.shares.control, REQUEST_OVERHEAD_BYTES
            return self.shares.writes, len(body) + WRITE_COST_BYTES
        share = self.shares.control if is_control(body) else self.shares.reads
        if opcode == READ:
            return share, min(self._read_reserve.size_bytes, share.size_bytes_max)
        if opcode not in BATCHES:
            return self.shares.adds, REQUEST_OVERHEAD_BYTES
        # An answer with fewer entries is valid, because the peer then requests the remaining
        # entries.
        wanted = size_wanted(body, self._shared.frame_size_bytes_max) + REQUEST_OVERHEAD_BYTES
        cost, answer_min = 0, ANSWERS_RESERVE_BYTES
        if opcode == READ_SLICES:
            cost, answer_min = slices_cost(len(body)), SLICES_ANSWER_BYTES_MIN
        allowed = max(share.allowance_bytes - cost, answer_min)
        # If the first entry of the last batch did not fit, wait until there is room for this entry.
        least = min(self._batch_least_bytes, share.size_bytes_max)
        return share, min(max(min(wanted, allowed), least) + cost, share.size_bytes_max)

    def _handle(self, body: memoryview, share: Share, taken_bytes: int) -> None:
        try:
            request = decode_request(body)
        except WireFormatError as error:
            if not self._is_version_3(body, share, taken_bytes):
                self._done(share, taken_bytes)
                self._close_on_bad_bytes(error)
            return
        if type(request) is AddRequest:
            self._add(request, body, share, taken_bytes)
        elif type(request) is AddRunRequest:
            self._add_run(request, body, share, taken_bytes)
        elif type(request) is ReadRequest:
            self._read(request, share, taken_bytes)
        elif type(request) is BatchReadRequest or type(request) is SliceReadRequest:
            self._read_list(request, len(body), share, taken_bytes)
        elif type(request) is TellLacRequest:
            self._announce(request, share, taken_bytes)
        elif type(request) is RefusedRequest:
            if self._is_version_3(body, share, taken_bytes):
                return
            self._shared.counters.bad_frames += 1
            self._answer(request.code, encode_refusal(request), share, taken_bytes)
        else:
            assert type(request) is AuthMessage
            self._auth(request, share, taken_bytes)

    def _announce(self, request: TellLacRequest, share: Share, taken_bytes: int) -> None:
        self._shared.storage.announce_lac(*request[2:])
        self._done(share, taken_bytes)
        if not self.is_proven:  # this request gets no answer, so `_flush` does not call `_prove`
            self._prove()

    def _is_version_3(self, body: memoryview, share: Share, taken_bytes: int) -> bool:
        """Return whether a request has version 3. If so, refuse it with an answer of version 3."""
        refusal = refusal_of_version_3(body) if body[0] == FIRST_BYTE else None
        if refusal is None:
            return False
        self._shared.counters.bad_frames += 1
        if self._shared.hosts_warned_of.note(self.host):
            _logger.warning(
                "protocol_version_3",
                peer=self.peer,
                reason="this bookie speaks version 2 of BookKeeper's protocol: set "
                "useV2WireProtocol=true in the client's configuration",
            )
        self._answer(Code.BAD_VERSION, refusal, share, taken_bytes)
        return True

    def _add(self, request: AddRequest, body: memoryview, share: Share, taken_bytes: int) -> None:
        version, flags, ledger_id, entry_id, master_key, entry = request
        self._store(
            StoredAdd(
                ledger_id,
                (entry_id,),
                (len(entry),),
                entry,
                master_key,
                bool(flags & RECOVERY_ADD),
                self.peer,
            ),
            partial(encode_add_answer, ledger_id=ledger_id, entry_id=entry_id, version=version),
            body,
            share,
            taken_bytes,
        )

    def _add_run(
        self, request: AddRunRequest, body: memoryview, share: Share, taken_bytes: int
    ) -> None:
        self._store(
            StoredAdd(
                request.ledger_id,
                request.entry_ids,
                request.lengths,
                request.body,
                request.master_key,
                bool(request.flags & RECOVERY_ADD),
                self.peer,
            ),
            partial(
                encode_add_run_answer,
                ledger_id=request.ledger_id,
                first_entry_id=request.entry_ids[0],
                request_id=request.request_id,
                version=request.version,
            ),
            body,
            share,
            taken_bytes,
        )

    def _store(
        self,
        add: StoredAdd,
        encode: Callable[[Code], bytes],
        body: memoryview,
        share: Share,
        taken_bytes: int,
    ) -> None:
        counters = self._shared.counters
        counters.add_requests += 1
        counters.add_entries += len(add.lengths)
        counters.add_bytes += len(body)
        counters.recovery_requests += add.is_recovery
        buffer = buffer_of(body)
        buffer.unanswered += 1
        stored = partial(self._stored, encode, buffer, share, taken_bytes)
        self._shared.storage.add(add, stored)

    def _stored(
        self,
        encode: Callable[[Code], bytes],
        buffer: ReceiveBuffer,
        share: Share,
        taken_bytes: int,
        code: Code,
    ) -> None:
        self._answer(code, encode(code), share, taken_bytes)
        self._free_buffer(buffer)

    def _read(self, request: ReadRequest, share: Share, taken_bytes: int) -> None:
        _, flags, ledger_id, entry_id, master_key = request
        counters = self._shared.counters
        counters.read_requests += 1
        counters.fence_requests += master_key is not None
        self._shared.storage.read(
            StoredRead(ledger_id, entry_id, master_key, bool(flags & HIGH_PRIORITY), self.peer),
            partial(self._entry_read, request, share, taken_bytes),
        )

    def _entry_read(
        self,
        request: ReadRequest,
        share: Share,
        taken_bytes: int,
        code: Code,
        entry: bytes | None,
    ) -> None:
        version, _, ledger_id, entry_id, _ = request
        size_bytes = 0 if entry is None else len(entry)
        self._read_reserve.learn(size_bytes)
        held_bytes = self._make_fit(share, taken_bytes, size_bytes + REQUEST_OVERHEAD_BYTES)
        if not held_bytes:
            busy = RefusedRequest(version, Opcode.READ, ledger_id, entry_id, None, Code.BUSY)
            self._answer(Code.BUSY, encode_refusal(busy), share, taken_bytes)
            return
        head = encode_read_answer_head(code, ledger_id, entry_id, size_bytes, version=version)
        if entry is None:
            self._answer(code, head, share, held_bytes)
        else:
            counters = self._shared.counters
            counters.read_entries += 1
            counters.read_bytes += size_bytes
            self._answer(code, head, share, held_bytes, entry)

    def _read_list(
        self,
        request: BatchReadRequest | SliceReadRequest,
        frame_bytes: int,
        share: Share,
        taken_bytes: int,
    ) -> None:
        self._shared.counters.read_requests += 1
        if type(request) is SliceReadRequest:
            self._read_slices(request, slices_cost(frame_bytes), share, taken_bytes)
        else:
            assert type(request) is BatchReadRequest
            self._read_batch(request, share, taken_bytes)

    def _read_batch(self, request: BatchReadRequest, share: Share, taken_bytes: int) -> None:
        counters = self._shared.counters
        counters.fence_requests += request.master_key is not None
        count_max = request.count_max if request.count_max > 0 else BATCH_COUNT_MAX
        size_bytes_max = size_allowed(request.size_bytes_max, self._shared.frame_size_bytes_max)
        self._shared.storage.read_batch(
            StoredBatchRead(
                request.ledger_id,
                request.first_entry_id,
                min(count_max, BATCH_COUNT_MAX),
                min(taken_bytes - REQUEST_OVERHEAD_BYTES, size_bytes_max),
                request.master_key,
                self.peer,
            ),
            partial(
                self._batch_read,
                Opcode.BATCH_READ,
                (request.ledger_id, request.first_entry_id, request.request_id),
                request.version,
                share,
                taken_bytes,
            ),
        )

    def _read_slices(
        self, request: SliceReadRequest, cost_bytes: int, share: Share, taken_bytes: int
    ) -> None:
        self._shared.counters.slice_requests += 1
        size_bytes_max = size_allowed(request.size_bytes_max, self._shared.frame_size_bytes_max)
        self._shared.storage.read_slices(
            StoredSliceRead(
                request.ledger_id,
                request.entries,
                min(taken_bytes - cost_bytes - REQUEST_OVERHEAD_BYTES, size_bytes_max),
                self.peer,
            ),
            partial(
                self._batch_read,
                Opcode.READ_SLICES,
                (request.ledger_id, request.entries[0][0], request.request_id),
                request.version,
                share,
                taken_bytes,
            ),
        )

    def _batch_read(
        self,
        opcode: Opcode,
        ids: tuple[int, int, int],
        version: int,
        share: Share,
        taken_bytes: int,
        code: Code,
        entries: Sequence[bytes],
    ) -> None:
        """Answer with entries, or with the slices of entries. The answer repeats `ids`."""
        size_bytes = sum(map(len, entries))
        needed_bytes = size_bytes + 4 * len(entries) + REQUEST_OVERHEAD_BYTES
        held_bytes = self._make_fit(share, taken_bytes, needed_bytes)
        self._batch_least_bytes = 0 if held_bytes else needed_bytes
        if not held_bytes:
            busy = RefusedRequest(version, opcode, *ids, Code.BUSY)
            self._answer(Code.BUSY, encode_refusal(busy), share, taken_bytes)
            return
        buffers = encode_batch_read_answer(code, *ids, entries, version=version, opcode=opcode)
        counters = self._shared.counters
        if opcode is Opcode.READ_SLICES:
            counters.slice_entries += len(entries)
            counters.slice_bytes += size_bytes
        else:
            counters.read_entries += len(entries)
            counters.read_bytes += size_bytes
        if size_bytes > len(buffers) * GATHERED_BYTES_MIN:
            self._answer(code, buffers[0], share, held_bytes, *buffers[1:])
        else:
            self._answer(code, b"".join(buffers), share, held_bytes)

    def _auth(self, request: AuthMessage, share: Share, taken_bytes: int) -> None:
        self._shared.counters.auth_requests += 1
        if request.message[:1] not in (bytes([_NAME_TAG]), bytes([_PAYLOAD_TAG])):
            self._done(share, taken_bytes)
            self._close_on_bad_bytes(WireFormatError("an AUTH frame without a message"))
            return
        self._answer(Code.OK, encode_auth(_AUTH_DISABLED, request.version), share, taken_bytes)


def size_wanted(body: memoryview, size_bytes_max: int) -> int:
    """Return the maximum number of bytes of entries that an encoded batch read allows.

    For a frame that is too short, the result does not matter, because the decoder refuses the
    frame.
    """
    if len(body) < _BATCH_SIZE_OFFSET + _BATCH_SIZE.size:
        return size_bytes_max
    (size_bytes,) = _BATCH_SIZE.unpack_from(body, _BATCH_SIZE_OFFSET)
    return size_allowed(size_bytes, size_bytes_max)


def slices_cost(frame_size_bytes: int) -> int:
    """Return the bytes of memory that a request for slices needs in addition to its answer.

    This memory has two parts: the decoded request, estimated from the size of its frame, and the
    chunk of a file from which the slices are copied. A frame of more than
    `SLICES_FRAME_SIZE_BYTES_MAX` is refused before its ranges are decoded.
    """
    decoded = min(frame_size_bytes, SLICES_FRAME_SIZE_BYTES_MAX) * SLICES_COST_FACTOR
    return decoded + CHUNK_SIZE


def size_allowed(size_bytes: int, size_bytes_max: int) -> int:
    """Return the limit for a batch read. If `size_bytes` is 0 or less, the client sets no limit."""
    return min(size_bytes, size_bytes_max) if size_bytes > 0 else size_bytes_max
