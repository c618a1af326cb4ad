"""What the server has to know of a request beside its fields: its lane, and how to refuse it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgerlog_spark.wire.opcodes import Flag, Opcode
from ledgerlog_spark.wire.requests import (
    AddRequest,
    AddRunRequest,
    BatchReadRequest,
    ReadRequest,
    RefusedRequest,
)

if TYPE_CHECKING:
    from ledgerlog_spark.model import Code

_OPCODE_OFFSET: Final = 1
_FLAGS_OFFSET: Final = 3
# Plain numbers: the operators of an IntFlag cost 1.8 us each.
RECOVERY_ADD: Final = int(Flag.RECOVERY_ADD)
HIGH_PRIORITY: Final = int(Flag.HIGH_PRIORITY)
_FENCE_OR_RECOVERY: Final = int(Flag.FENCE | Flag.HIGH_PRIORITY)


def is_control(body: memoryview) -> bool:
    """Whether a frame is recovery's or fencing's, by the lowest byte of its packet header."""
    if len(body) <= _FLAGS_OFFSET:
        return True
    flags, opcode = body[_FLAGS_OFFSET], body[_OPCODE_OFFSET]
    if opcode in (Opcode.ADD, Opcode.ADD_RUN):
        return bool(flags & RECOVERY_ADD)
    return bool(flags & _FENCE_OR_RECOVERY)


def is_add(body: memoryview) -> bool:
    """Whether a frame adds entries, by the packet header's operation."""
    return len(body) > _FLAGS_OFFSET and body[_OPCODE_OFFSET] in (Opcode.ADD, Opcode.ADD_RUN)


def refusal_of(
    request: AddRequest | AddRunRequest | ReadRequest | BatchReadRequest | RefusedRequest,
    code: Code,
) -> RefusedRequest:
    """The refusal of a request with `code`; one that is refused already stays as it is."""
    version, ledger_id = request.version, request.ledger_id
    if isinstance(request, RefusedRequest):
        return request
    if isinstance(request, AddRequest):
        return RefusedRequest(version, Opcode.ADD, ledger_id, request.entry_id, None, code)
    if isinstance(request, ReadRequest):
        return RefusedRequest(version, Opcode.READ, ledger_id, request.entry_id, None, code)
    if isinstance(request, AddRunRequest):
        return RefusedRequest(
            version, Opcode.ADD_RUN, ledger_id, request.entry_ids[0], request.request_id, code
        )
    return RefusedRequest(
        version, Opcode.BATCH_READ, ledger_id, request.first_entry_id, request.request_id, code
    )
