from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CODE_OK: _ClassVar[Code]
    CODE_NO_LEDGER: _ClassVar[Code]
    CODE_NO_ENTRY: _ClassVar[Code]
    CODE_BAD_REQUEST: _ClassVar[Code]
    CODE_IO_ERROR: _ClassVar[Code]
    CODE_UNAUTHORIZED: _ClassVar[Code]
    CODE_BAD_VERSION: _ClassVar[Code]
    CODE_FENCED: _ClassVar[Code]
    CODE_READ_ONLY: _ClassVar[Code]
    CODE_BUSY: _ClassVar[Code]
CODE_OK: Code
CODE_NO_LEDGER: Code
CODE_NO_ENTRY: Code
CODE_BAD_REQUEST: Code
CODE_IO_ERROR: Code
CODE_UNAUTHORIZED: Code
CODE_BAD_VERSION: Code
CODE_FENCED: Code
CODE_READ_ONLY: Code
CODE_BUSY: Code

class AppendRequest(_message.Message):
    __slots__ = ("request_id", "ledger_id", "entry_ids", "lengths", "body", "master_key", "is_recovery", "more_size_bytes")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_IDS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERY_FIELD_NUMBER: _ClassVar[int]
    MORE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    ledger_id: int
    entry_ids: _containers.RepeatedScalarFieldContainer[int]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    body: bytes
    master_key: bytes
    is_recovery: bool
    more_size_bytes: int
    def __init__(self, request_id: _Optional[int] = ..., ledger_id: _Optional[int] = ..., entry_ids: _Optional[_Iterable[int]] = ..., lengths: _Optional[_Iterable[int]] = ..., body: _Optional[bytes] = ..., master_key: _Optional[bytes] = ..., is_recovery: bool = ..., more_size_bytes: _Optional[int] = ...) -> None: ...

class AppendReply(_message.Message):
    __slots__ = ("request_id", "code")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    code: Code
    def __init__(self, request_id: _Optional[int] = ..., code: _Optional[_Union[Code, str]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("request_id", "ledger_id", "entry_id", "fence_key", "is_recovery")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_KEY_FIELD_NUMBER: _ClassVar[int]
    IS_RECOVERY_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    ledger_id: int
    entry_id: int
    fence_key: bytes
    is_recovery: bool
    def __init__(self, request_id: _Optional[int] = ..., ledger_id: _Optional[int] = ..., entry_id: _Optional[int] = ..., fence_key: _Optional[bytes] = ..., is_recovery: bool = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("request_id", "code", "entry")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    code: Code
    entry: bytes
    def __init__(self, request_id: _Optional[int] = ..., code: _Optional[_Union[Code, str]] = ..., entry: _Optional[bytes] = ...) -> None: ...

class BatchReadRequest(_message.Message):
    __slots__ = ("ledger_id", "first_entry_id", "count_max", "size_bytes_max")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry_id: int
    count_max: int
    size_bytes_max: int
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., count_max: _Optional[int] = ..., size_bytes_max: _Optional[int] = ...) -> None: ...

class BatchReadReply(_message.Message):
    __slots__ = ("code", "entries")
    CODE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    code: Code
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., entries: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ReadLacRequest(_message.Message):
    __slots__ = ("ledger_id",)
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    def __init__(self, ledger_id: _Optional[int] = ...) -> None: ...

class WriteLacRequest(_message.Message):
    __slots__ = ("request_id", "ledger_id", "last_add_confirmed", "master_key")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    MASTER_KEY_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    ledger_id: int
    last_add_confirmed: int
    master_key: bytes
    def __init__(self, request_id: _Optional[int] = ..., ledger_id: _Optional[int] = ..., last_add_confirmed: _Optional[int] = ..., master_key: _Optional[bytes] = ...) -> None: ...

class WriteLacReply(_message.Message):
    __slots__ = ("request_id", "code")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    code: Code
    def __init__(self, request_id: _Optional[int] = ..., code: _Optional[_Union[Code, str]] = ...) -> None: ...

class WatchLacRequest(_message.Message):
    __slots__ = ("ledger_id", "previous", "entries_size_bytes_max")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_SIZE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    previous: int
    entries_size_bytes_max: int
    def __init__(self, ledger_id: _Optional[int] = ..., previous: _Optional[int] = ..., entries_size_bytes_max: _Optional[int] = ...) -> None: ...

class LacReply(_message.Message):
    __slots__ = ("code", "last_add_confirmed", "entries")
    CODE_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    code: Code
    last_add_confirmed: int
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., last_add_confirmed: _Optional[int] = ..., entries: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ListEntriesRequest(_message.Message):
    __slots__ = ("ledger_id",)
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    def __init__(self, ledger_id: _Optional[int] = ...) -> None: ...

class EntryRange(_message.Message):
    __slots__ = ("first_entry_id", "last_entry_id")
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    first_entry_id: int
    last_entry_id: int
    def __init__(self, first_entry_id: _Optional[int] = ..., last_entry_id: _Optional[int] = ...) -> None: ...

class ListEntriesReply(_message.Message):
    __slots__ = ("code", "ranges")
    CODE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    code: Code
    ranges: _containers.RepeatedCompositeFieldContainer[EntryRange]
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., ranges: _Optional[_Iterable[_Union[EntryRange, _Mapping]]] = ...) -> None: ...

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoReply(_message.Message):
    __slots__ = ("bookie_id", "is_writable", "failure", "in_flight_bytes", "connections", "free_bytes", "total_bytes", "ledgers_count", "ledgers_in_limbo")
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_WRITABLE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_COUNT_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_IN_LIMBO_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    is_writable: bool
    failure: str
    in_flight_bytes: int
    connections: int
    free_bytes: int
    total_bytes: int
    ledgers_count: int
    ledgers_in_limbo: int
    def __init__(self, bookie_id: _Optional[str] = ..., is_writable: bool = ..., failure: _Optional[str] = ..., in_flight_bytes: _Optional[int] = ..., connections: _Optional[int] = ..., free_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., ledgers_count: _Optional[int] = ..., ledgers_in_limbo: _Optional[int] = ...) -> None: ...

class CollectGarbageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CollectGarbageReply(_message.Message):
    __slots__ = ("code", "ledgers_held", "ledgers_dropped")
    CODE_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_HELD_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    code: Code
    ledgers_held: int
    ledgers_dropped: int
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., ledgers_held: _Optional[int] = ..., ledgers_dropped: _Optional[int] = ...) -> None: ...

class ListLimboRequest(_message.Message):
    __slots__ = ("after_ledger_id", "count_max")
    AFTER_LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    after_ledger_id: int
    count_max: int
    def __init__(self, after_ledger_id: _Optional[int] = ..., count_max: _Optional[int] = ...) -> None: ...

class LimboLedger(_message.Message):
    __slots__ = ("ledger_id", "outcome", "problem", "state", "missing", "missing_count")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    MISSING_COUNT_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    outcome: str
    problem: str
    state: str
    missing: _containers.RepeatedScalarFieldContainer[int]
    missing_count: int
    def __init__(self, ledger_id: _Optional[int] = ..., outcome: _Optional[str] = ..., problem: _Optional[str] = ..., state: _Optional[str] = ..., missing: _Optional[_Iterable[int]] = ..., missing_count: _Optional[int] = ...) -> None: ...

class ListLimboReply(_message.Message):
    __slots__ = ("ledgers", "has_more", "epoch", "is_in_doubt", "repair_state", "ledgers_left", "entries_fetched")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_IN_DOUBT_FIELD_NUMBER: _ClassVar[int]
    REPAIR_STATE_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_LEFT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FETCHED_FIELD_NUMBER: _ClassVar[int]
    ledgers: _containers.RepeatedCompositeFieldContainer[LimboLedger]
    has_more: bool
    epoch: int
    is_in_doubt: bool
    repair_state: str
    ledgers_left: int
    entries_fetched: int
    def __init__(self, ledgers: _Optional[_Iterable[_Union[LimboLedger, _Mapping]]] = ..., has_more: bool = ..., epoch: _Optional[int] = ..., is_in_doubt: bool = ..., repair_state: _Optional[str] = ..., ledgers_left: _Optional[int] = ..., entries_fetched: _Optional[int] = ...) -> None: ...

class AcceptLossRequest(_message.Message):
    __slots__ = ("ledger_id", "reason", "accepted_by", "is_unclosed", "is_forced")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_BY_FIELD_NUMBER: _ClassVar[int]
    IS_UNCLOSED_FIELD_NUMBER: _ClassVar[int]
    IS_FORCED_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    reason: str
    accepted_by: str
    is_unclosed: bool
    is_forced: bool
    def __init__(self, ledger_id: _Optional[int] = ..., reason: _Optional[str] = ..., accepted_by: _Optional[str] = ..., is_unclosed: bool = ..., is_forced: bool = ...) -> None: ...

class AcceptLossReply(_message.Message):
    __slots__ = ("refusal", "is_retriable", "is_lost", "entry_ids", "entries_count")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    IS_RETRIABLE_FIELD_NUMBER: _ClassVar[int]
    IS_LOST_FIELD_NUMBER: _ClassVar[int]
    ENTRY_IDS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_COUNT_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    is_retriable: bool
    is_lost: bool
    entry_ids: _containers.RepeatedScalarFieldContainer[int]
    entries_count: int
    def __init__(self, refusal: _Optional[str] = ..., is_retriable: bool = ..., is_lost: bool = ..., entry_ids: _Optional[_Iterable[int]] = ..., entries_count: _Optional[int] = ...) -> None: ...

class RaiseDoubtRequest(_message.Message):
    __slots__ = ("reason", "raised_by")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RAISED_BY_FIELD_NUMBER: _ClassVar[int]
    reason: str
    raised_by: str
    def __init__(self, reason: _Optional[str] = ..., raised_by: _Optional[str] = ...) -> None: ...

class RaiseDoubtReply(_message.Message):
    __slots__ = ("refusal", "epoch")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    epoch: int
    def __init__(self, refusal: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...
