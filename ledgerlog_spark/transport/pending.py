"""Requests that wait for a reply. Each request gets exactly one reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, Code
from ledgerlog_spark.transport import port
from ledgerlog_spark.transport.prepared_run import PreparedRun
from ledgerlog_spark.wire.opcodes import Flag, Opcode
from ledgerlog_spark.wire.requests import encode_batch_read, encode_read
from ledgerlog_spark.wire.slice_requests import encode_read_slices

R = TypeVar("R")
Key = tuple[int, int, int]
"""The key that matches an answer without a request id to its request: operation, ledger id and
entry id."""

_BY_WEIGHT: Final = (
    Code.OK,
    Code.READ_ONLY,
    Code.BAD_REQUEST,
    Code.BAD_VERSION,
    Code.NO_ENTRY,
    Code.NO_LEDGER,
    Code.BUSY,
    Code.DIGEST_MISMATCH,
    Code.IO_ERROR,
    Code.UNAVAILABLE,
    Code.TIMEOUT,
    Code.UNAUTHORIZED,
    Code.FENCED,
)
_WEIGHTS: Final = {code: weight for weight, code in enumerate(_BY_WEIGHT)}
assert _WEIGHTS.keys() == set(Code)


def worst(one: Code, other: Code) -> Code:
    """Return the worse of the codes of two entries, which is the code of a run of these entries.

    The worst codes concern the whole ledger (fenced, wrong key). The next worse codes
    have an unknown outcome, because a part of the run may be stored. After these come refusals by
    the bookie.
    """
    return one if _WEIGHTS[one] >= _WEIGHTS[other] else other


class Pending(ABC):
    """A request that waits for its answer. It is answered at most once."""

    __slots__ = ("is_open", "submitted_at")

    def __init__(self) -> None:
        self.is_open = True  # False after an answer or a time-out
        self.submitted_at = 0.0  # seconds, by the clock of the event loop

    @property
    def is_wanted(self) -> bool:
        """Whether a caller waits for the answer."""
        return self.is_open

    @abstractmethod
    def fail(self, code: Code) -> None:
        """Answer with a code and without a result, unless the request was already answered."""


class PendingRun(Pending):
    """The add of a run of entries, which is sent as one ADD_RUN, or as one ADD for each entry."""

    __slots__ = ("_code", "_on_reply", "_unanswered", "prepared", "request_id")

    def __init__(self, prepared: PreparedRun, request_id: int, on_reply: port.OnAdd) -> None:
        super().__init__()
        self.prepared: PreparedRun | None = prepared  # None as soon as no caller waits for the run
        self.request_id = request_id
        self._on_reply = on_reply
        self._unanswered = 0
        self._code = Code.OK

    def fail(self, code: Code) -> None:
        """Answer with this code, which may be OK, because the reply to an add is only a code."""
        if self.is_open:
            self.is_open = False
            self.prepared = None
            self._on_reply(code)

    def frame(self) -> Sequence[port.Buffer]:
        """Return the buffers of the ADD_RUN request."""
        assert self.prepared is not None, "an answered run is not sent"
        return self.prepared.frame_as_run(self.request_id)

    def as_adds(self) -> list[PendingAdd]:
        """Return one request for each entry. The run is answered when all entries are answered."""
        assert self.prepared is not None, "an answered run is not sent"
        self._code = Code.OK
        self._unanswered = len(self.prepared.lengths)
        return [PendingAdd(self, place) for place in range(self._unanswered)]

    def entry_answered(self, code: Code) -> None:
        """Count the answer to one request of `as_adds`; after the last answer, answer the run."""
        self._unanswered -= 1
        assert self._unanswered >= 0, "an entry was answered twice"
        self._code = worst(self._code, code)
        if self._unanswered == 0:
            self.fail(self._code)


class PendingKeyed(Pending):
    """A request whose answer has no request id.

    A connection sends only one request with the same key at a time.
    """

    __slots__ = ("followers", "key")

    def __init__(self, key: Key) -> None:
        super().__init__()
        self.key = key
        # requests with the same key, which are sent after this request is answered
        self.followers: list[PendingKeyed] = []

    @abstractmethod
    def frame(self) -> Sequence[port.Buffer]:
        """Return the buffers of the request's frame."""


class PendingAdd(PendingKeyed):
    """The ADD of one entry of a run. It reports its code to the run, and times out with the run."""

    __slots__ = ("_place", "_run")

    def __init__(self, run: PendingRun, place: int) -> None:
        assert run.prepared is not None
        request = run.prepared.request
        super().__init__((Opcode.ADD, request.ledger_id, request.entry_ids[place]))
        self._run = run
        self._place = place

    @property
    def is_wanted(self) -> bool:
        """Whether the run still waits for the answer about this entry."""
        return self.is_open and self._run.is_open

    def frame(self) -> Sequence[port.Buffer]:
        """Return the buffers of the ADD request."""
        assert self._run.prepared is not None, "an entry of an answered run is not sent"
        return self._run.prepared.frame_of_entry(self._place)

    def fail(self, code: Code) -> None:
        """Report the result code of this entry to its run of entries. The code may be OK."""
        if self.is_open:
            self.is_open = False
            self._run.entry_answered(code)


class PendingRequest(Pending, Generic[R]):
    """A request that is sent in one frame, and whose reply has a result of type R."""

    __slots__ = ()
    _empty: ClassVar[Any] = None
    _frame: bytes
    _on_reply: Callable[[Code, R], None]

    def frame(self) -> Sequence[port.Buffer]:
        """Return the buffers of the request's frame."""
        return (self._frame,)

    def fail(self, code: Code) -> None:
        """Answer with a code and without a result."""
        self.finish(code, self._empty)

    def finish(self, code: Code, result: R) -> None:
        """Answer with a code and a result, unless the request was already answered."""
        if self.is_open:
            self.is_open = False
            self._on_reply(code, result)


class PendingRead(PendingRequest["bytes | None"], PendingKeyed):
    """The READ of one entry."""

    __slots__ = ("_frame", "_on_reply")

    def __init__(self, request: port.ReadEntry, on_reply: port.OnRead) -> None:
        super().__init__((Opcode.READ, request.ledger_id, request.entry_id))
        self._frame = encode_read(
            request.ledger_id,
            request.entry_id,
            fence_key=request.fence_key,
            flags=Flag.HIGH_PRIORITY if request.is_recovery else 0,
        )
        self._on_reply = on_reply


class PendingBatch(PendingRequest["Sequence[bytes]"]):
    """A BATCH_READ."""

    __slots__ = ("_frame", "_on_reply", "request_id")
    _empty = ()

    def __init__(
        self, request: port.ReadBatch, request_id: int, on_reply: port.OnReadBatch
    ) -> None:
        super().__init__()
        self._frame = encode_batch_read(
            request.ledger_id,
            request.first_entry_id,
            request_id=request_id,
            count_max=request.count_max,
            size_bytes_max=min(request.size_bytes_max, FRAME_SIZE_BYTES_MAX),
            flags=Flag.HIGH_PRIORITY if request.is_recovery else 0,
        )
        self.request_id = request_id
        self._on_reply = on_reply


class PendingSlices(PendingRequest["Sequence[bytes]"]):
    """A READ_SLICES."""

    __slots__ = ("_frame", "_on_reply", "request_id")
    _empty = ()

    def __init__(
        self, request: port.ReadSlices, request_id: int, on_reply: port.OnReadBatch
    ) -> None:
        super().__init__()
        self._frame = encode_read_slices(
            request.ledger_id,
            request.entries,
            request_id=request_id,
            size_bytes_max=min(request.size_bytes_max, FRAME_SIZE_BYTES_MAX),
        )
        self.request_id = request_id
        self._on_reply = on_reply
