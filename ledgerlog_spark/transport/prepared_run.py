"""Prepares a run of entries once for all bookies: checks the run, and joins its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX
from ledgerlog_spark.transport.port import AddRun, Buffer
from ledgerlog_spark.wire.frames import ENTRY_SIZE_BYTES_MAX
from ledgerlog_spark.wire.opcodes import Flag
from ledgerlog_spark.wire.requests import (
    add_run_size_bytes,
    check_run,
    checked_key,
    encode_add_head,
    encode_add_run_head,
    with_request_id,
)

GATHERED_BYTES_MIN: Final = 8_192
"""Minimum average size of the buffers of a run that are passed to the kernel without joining
them."""

_RECOVERY = Flag.RECOVERY_ADD | Flag.HIGH_PRIORITY


class PreparedRun:
    """One `AddRun` that is prepared for frames to several bookies."""

    __slots__ = ("_head", "body", "lengths", "request", "size_bytes")

    def __init__(self, request: AddRun) -> None:
        self.request = request
        self._head: bytes | None = None
        # size in bytes of each stored entry
        self.lengths = [sum(map(len, entry)) for entry in request.entries]
        self.size_bytes = sum(self.lengths)
        self._check()
        buffers: Sequence[Buffer] = list(chain.from_iterable(request.entries))
        if self.size_bytes < GATHERED_BYTES_MIN * len(buffers):
            buffers = (b"".join(buffers),)
        self.body = buffers  # the stored entries, joined if they are small

    def frame_as_run(self, request_id: int) -> list[Buffer]:
        """Return the buffers of one ADD_RUN."""
        head = self._head
        if head is None:
            request = self.request
            head = self._head = encode_add_run_head(
                ledger_id=request.ledger_id,
                request_id=0,
                entry_ids=request.entry_ids,
                lengths=self.lengths,
                master_key=request.master_key,
                flags=_RECOVERY if request.is_recovery else 0,
            )
        return [with_request_id(head, request_id), *self.body]

    def frame_of_entry(self, place: int) -> list[Buffer]:
        """Return the buffers of the ADD of the entry at `place` in the run."""
        request = self.request
        flags = _RECOVERY if request.is_recovery else 0
        head = encode_add_head(request.master_key, self.lengths[place], flags)
        return [head, *request.entries[place]]

    def _check(self) -> None:
        request, count = self.request, len(self.lengths)
        checked_key(request.master_key)
        check_run(request.ledger_id, request.entry_ids, self.lengths)
        frame_size_bytes = add_run_size_bytes(count, self.size_bytes, is_listed=True)
        if max(self.lengths) > ENTRY_SIZE_BYTES_MAX or frame_size_bytes > FRAME_SIZE_BYTES_MAX:
            raise LocalProtocolError(
                f"a run of {count} entries does not fit into a frame: its largest stored entry has "
                f"{max(self.lengths)} bytes (at most {ENTRY_SIZE_BYTES_MAX}), and its frame would "
                f"have {frame_size_bytes} bytes (at most {FRAME_SIZE_BYTES_MAX}); send smaller "
                "entries",
                ledger_id=request.ledger_id,
                size_bytes=self.size_bytes,
            )
