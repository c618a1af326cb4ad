"""The settings of a client: time-outs, limits of the requests in flight, and batching.

All times are in milliseconds, and all sizes are in bytes. The name of such a setting ends with its
unit or contains `size_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import ENTRY_HEADER_SIZE_BYTES, check_type
from ledgerlog_spark.protocol.ledger.read.budget import ReaderSettings
from ledgerlog_spark.protocol.ledger.recover.recovery import RecoverySettings
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from ledgerlog_spark.wire.frames import ENTRY_SIZE_BYTES_MAX

PAYLOAD_SIZE_BYTES_MAX = ENTRY_SIZE_BYTES_MAX - ENTRY_HEADER_SIZE_BYTES - 20
"""Maximum payload of one entry: a little less than 5 MiB, with the largest digest (20 bytes)."""

_PARTS = {
    "writer": WriterSettings,
    "reader": ReaderSettings,
    "recovery": RecoverySettings,
    "placement": PlacementPolicy,
}


def _writer_settings() -> WriterSettings:
    return WriterSettings(add_quorum_timeout_ms=60_000)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Limits of one client. All numbers are positive.

    Raises:
        ConfigurationError: A setting is not positive, or has another type. The message contains the
            name and the value of the setting.

    Attributes:
        add_timeout_ms: Maximum time of one add on one bookie. After this time, the bookie counts as
            failed.
        read_timeout_ms: Maximum time of one read on one bookie. After this time, the next replica
            is used.
        metadata_timeout_ms: Maximum time of one call of the metadata store.
        connect_timeout_ms: Maximum time in which a new client must connect to the metadata store.
        session_timeout_ms: Time for which the metadata store keeps the session of a client after
            the connection was lost.
        linger_ms: Maximum time for which a small append waits for further appends while
            `runs_in_flight_min` or more runs are in flight. If fewer runs are in flight, the append
            does not wait.
        runs_in_flight_min: If at least this number of runs is in flight, small appends wait for
            `linger_ms`.
        entries_in_flight_min: If at least this number of entries of a leader log is in flight,
            records wait for `linger_ms`. While records wait, entries become larger, which increases
            the throughput of a log. A full entry never waits. A larger value increases the latency
            of entries.
        close_timeout_ms: Maximum time for which the close of a ledger waits for the metadata store
            after all appends have ended. The same limit applies when a leader log rolls.
        open_timeout_ms: Maximum time to become the leader of a log. In this time, the new leader
            seals the open ledgers of an earlier leader, and creates and lists a new ledger.
        explicit_lac_ms: Time for which a writer with `explicit_lac` is idle before it writes its
            last add confirmed to all bookies of the ensemble. In addition, the writer immediately
            notifies one bookie of each new value.
        backlog_entries_max: Maximum number of accepted appends that are not sent yet. At this
            limit, an append of the blocking API blocks, and `drain` of the asyncio API waits.
        backlog_size_bytes_max: Maximum payload bytes of accepted appends that are not sent yet.
        writer: Limit of runs in flight, retries and time-out of the ack quorum for the writer of
            each ledger.
        reader: Read-ahead, batch sizes and second requests (hedging) for each range that is read.
        recovery: Read-ahead and retries of each seal.
        placement: The rules for the choice of the bookies of new entries. If this is None, the
            policy of the cluster is used, which `ledgerlog bookies policy` sets.
    """

    add_timeout_ms: int = 5_000
    read_timeout_ms: int = 5_000
    metadata_timeout_ms: int = 10_000
    connect_timeout_ms: int = 10_000
    session_timeout_ms: int = 10_000
    linger_ms: int = 2
    runs_in_flight_min: int = 2
    entries_in_flight_min: int = 1
    close_timeout_ms: int = 30_000
    open_timeout_ms: int = 120_000
    explicit_lac_ms: int = 50
    backlog_entries_max: int = 16_384
    backlog_size_bytes_max: int = 16 << 20
    writer: WriterSettings = field(default_factory=_writer_settings)
    reader: ReaderSettings = field(default_factory=ReaderSettings)
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    placement: PlacementPolicy | None = None

    @property
    def stall_ms(self) -> int:
        """The time without a reply after which a waiting machine is treated as stuck.

        No request and no pause between two requests takes this long.
        """
        longest = max(self.add_timeout_ms, self.read_timeout_ms, self.metadata_timeout_ms)
        pauses = self.recovery.retry, self.recovery.metadata, self.reader.overload
        return 2 * longest + max(10_000, 2 * max(policy.delay_max_ms for policy in pauses))

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name == "placement" and value is None:
                continue
            kind = _PARTS.get(setting.name, int)
            check_type(setting.name, value, kind)
            if isinstance(value, int) and value < 1:
                raise ConfigurationError(
                    f"{setting.name} must be at least 1, got {value}", key=setting.name, value=value
                )
