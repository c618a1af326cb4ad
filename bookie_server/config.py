"""Settings of a bookie process.

The command line overrides the environment. The environment overrides the TOML file. All settings
are checked before a data file or a port is opened. The error for a wrong setting contains the key,
the value and the reason. An unknown key in the file or on the command line is an error. The name of
an environment variable is the prefix `LEDGERLOG_` and the key in capitals. A list of directories in
the environment is separated by commas (`LEDGERLOG_DIRECTORIES=/data/b1,/data/b2`) or written as
JSON. On the command line, the option is repeated for each element of a list.
"""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from bookie_server.core.bookie_run import BookieWriteMode
from bookie_server.core.settings import JOURNAL_FILES_MIN, ModeSettings
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, SERVICE_URI_DEFAULT, checked_place_name

KIBIBYTE = 1 << 10
MEBIBYTE = 1 << 20

ADDS_RESERVE_BYTES = 64 * KIBIBYTE
ANSWERS_RESERVE_BYTES = 32 * KIBIBYTE
CONNECTION_RESERVE_BYTES = ADDS_RESERVE_BYTES + 2 * ANSWERS_RESERVE_BYTES
"""Number of bytes that are reserved for each connection. The reserve consists of three parts: for
adds, for answers to reads, and for recovery and fencing."""

FRAMES_IN_SHARED_MIN = 18
"""Minimum number of frames of the maximum size for which the shared memory must have room.

One eighth of the shared memory is for recovery and fencing. One connection gets at most half of
this eighth. With 18 frames, this half has room for one frame."""

DIRECTORIES_MAX = 16

BOOKIE_ID_PATTERN = re.compile(r"[A-Za-z0-9._:-]{1,200}")

Port = Annotated[int, Field(ge=0, le=65_535)]
SizeBytes = Annotated[int, Field(gt=0)]
Percent = Annotated[int, Field(ge=0, le=100)]
TimeMs = Annotated[int, Field(gt=0, le=3_600_000)]
UsedPart = Annotated[float, Field(gt=0, le=1)]


def _listed(value: object) -> object:
    """Split a text at its commas, unless it is a list in JSON."""
    if isinstance(value, Path):
        return (value,)
    if not isinstance(value, str):
        return value
    if not value.startswith("["):
        return [path.strip() for path in value.split(",") if path.strip()]
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"a list that begins with [ is written as JSON: {error}") from None


def _absolute(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(path.expanduser().absolute() for path in paths)


Paths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_listed), AfterValidator(_absolute)]


PlaceName = Annotated[str, AfterValidator(checked_place_name)]


class Place(NamedTuple):
    """A directory for entries, with its journal directory if the write mode needs one."""

    path: Path
    journal: Path | None


class BookieSettings(BaseSettings):
    """All settings of one bookie; immutable.

    Attributes:
        directories: Directories for entries, at most 16, each on a device of its own if possible.
            Each ledger is stored in one of these directories. A directory is created if it does not
            exist. Later starts need the same directories.
        without_directories: Lost directories of the bookie. The bookie starts without them. From
            this start on, they do not belong to the bookie, and the bookie is in doubt: it may have
            lost entries of any ledger. The option is `--without-directory`.
        allow_storage_expansion: Allows new, empty directories in `directories`.
        bookie_id: Permanent name of the bookie; defaults to `advertised_address:port`.
        port: TCP port for the requests of clients; 0 selects a free port and requires `bookie_id`.
        grpc_port: Port of the control service (gRPC); 0 selects a free port, which is registered.
        metrics_port: HTTP port of the metrics for Prometheus, the status page and the admin routes.
            By default, this port is not open.
        admin_changes: Allows requests on the metrics port that change the bookie: they make it
            read-only or writable, and start garbage collection. By default, such requests are
            refused.
        bind_address: IP address that all servers listen on.
        advertised_address: Address that is registered for clients; defaults to `bind_address`.
        rack: Name of the rack of this machine. The copies of an entry are in at least two racks if
            possible. In a running cluster, `ledgerlog bookies place` sets the rack of a bookie.
        region: Name of the region of this machine, such as a data center. The copies of an entry
            are in at least two regions if possible.
        insecure: Allows a `bind_address` that other machines can reach, although traffic is neither
            encrypted nor authenticated.
        metadata_service_uri: Address of the metadata store, which is ZooKeeper, in the form
            `zk://host:port[,host:port]/ledgers`.
        metadata_wait_ms: Maximum time that the bookie waits for the metadata store when it starts.
            It is also the time limit of every request to this store.
        session_timeout_ms: Time for which the bookie stays registered after it stops responding.
        file_size_bytes: Size of each entry-log file.
        frame_size_bytes_max: Size of the largest accepted frame, including its length field.
        in_flight_bytes_max: Maximum number of bytes that are held for all peers: received bytes,
            including incomplete frames, and unsent answers. 128 KiB are reserved for each
            connection. All connections share the remaining bytes.
        connections_max: Maximum number of data connections. At the maximum, a new connection
            replaces an idle connection. If no connection is idle, the new connection is refused.
        stall_timeout_ms: Time in which a peer must make progress. A connection is closed if answers
            wait, but its peer accepts less than 16 KiB of these answers in this time. It is also
            closed if a frame is incomplete, but the peer neither completes the frame nor sends 16
            KiB of it in this time. For a whole frame, the limit is ten times as long. If a lane
            (the part of the memory for adds, for reads, or for recovery and fencing) is full, a
            peer that uses memory of this lane must make progress within a quarter of a second.
        first_request_timeout_ms: Time in which a connection must send its first request. Otherwise,
            the connection is closed, unless a request is incomplete or being processed.
        watches_max: Maximum number of watches of last adds confirmed. Readers that wait for new
            entries set these watches.
        free_bytes_min: Number of bytes that must stay free on the device. The bookie becomes
            read-only if fewer bytes would be free after it allocates its next file.
        disk_usage_warn: Used share of the device, from 0 to 1, above which the bookie logs a
            warning. Freed files that the bookie keeps for reuse do not count as used.
        disk_usage_max: Used share of the device above which the bookie becomes read-only. The
            bookie then still accepts fences and the adds of recovery. 1 means no limit except
            `free_bytes_min`.
        disk_usage_low_water: Used share of the device below which the bookie accepts entries again,
            after the share was above `disk_usage_max`.
        disk_check_interval_ms: Time between two measurements of the device. The bookie also
            measures the device after each new file.
        write_mode: `direct`, `journal` or `unjournaled`: where an entry must be before its add is
            acknowledged. `direct` syncs it in the entry log. `journal` syncs it in a journal file,
            which may be on another device, and the entry log is synced later. `unjournaled` writes
            the entry log and syncs it later, so a power loss can lose acknowledged entries. If the
            power fails while a bookie in this mode has unsynced entries, the bookie starts in
            doubt: it denies no entry that it may have lost. The mode may change at each start.
        journal_directory: Directory of the journal files. It is required in `write_mode` `journal`,
            and not allowed in other modes. It must exist. Each directory of a bookie needs a
            journal directory of its own, in the same order.
        journal_sync_data: If false, `write_mode` `journal` acknowledges an entry before the sync of
            its journal file, as `unjournaled` does. A power loss can then lose the entry.
        journal_files: Number of journal files. Each has the size `file_size_bytes`, and is
            allocated at the start and reused.
        checkpoint_interval_ms: Maximum time until the entry log is synced, if `write_mode` is not
            `direct`. In mode `unjournaled`, a fence or a deletion causes an earlier sync.
        group_wait_ms: Time that a group of records waits for more records if the device is idle
            and the group is not full. If it is 0, the first record is written and synced
            immediately.
        change_interval_ms: Time between two increases of the counter of the directory, while the
            bookie stores data. If a copy of the directory was made within this time, the bookie may
            not detect that the copy is older.
        allow_lost_directory: Starts a bookie that is known in the cluster with an empty directory,
            because its data is lost. The bookie then starts in doubt: it denies no entry that it
            may have lost. Without this setting, such a start is refused, because perhaps the disk
            is just not mounted. The setting is only for a bookie with one directory.
        gc_interval_ms: Time between two passes that delete the entries of deleted ledgers.
        release_wait_ms: If a closed ledger gets no add for this time, and its metadata no longer
            names the bookie, a pass also deletes the entries of the ledger. This is the case, for
            example, after the entries were copied to another bookie. The time restarts when the
            bookie starts. If it is 0, such entries are kept.
        compaction_minor_percent: Every `compaction_minor_interval_ms`, the bookie compacts each
            file with less than this percentage of live bytes: it copies the live entries to another
            file, and frees the old file. 0 disables these compactions.
        compaction_major_percent: Like `compaction_minor_percent`, but for the compaction every
            `compaction_major_interval_ms`. While the disk is full, this compaction runs
            immediately. If both percentages are 0, nothing is compacted.
        compaction_minor_interval_ms: Time between two compactions with `compaction_minor_percent`;
            0 disables these compactions.
        compaction_major_interval_ms: Time between two compactions with `compaction_major_percent`;
            0 disables these compactions.
        compaction_bytes_per_s: Number of bytes that compaction reads and writes in a second; 0 sets
            no limit.
        scrub_interval_ms: Time between the beginnings of two scrubs. A scrub reads all finished
            files from the device, and looks for damage. If a scrub takes longer than this time, the
            next scrub begins at its end. 0 disables all scrubs, except scrubs that an administrator
            requests.
        scrub_bytes_per_s: Number of bytes that a scrub reads in a second; 0 sets no limit.
        repair_bytes_per_s: Number of bytes that a repair fetches from other bookies in a second; 0
            sets no limit. A repair fetches the entries that the bookie may have lost.
        repair_idle_ms: Time for which an open ledger in limbo must get no entry, before the bookie
            recovers and closes the ledger.
        repair_stuck_ms: Time for which a ledger that is in limbo and in recovery must not change,
            before the bookie recovers the ledger again and closes it.
        autorecovery: Whether the bookie also audits the cluster, and copies entries that other
            bookies lack. `ledgerlog autorecovery run` does the same in a process of its own.
        autorecovery_bytes_per_s: Number of bytes that auto-recovery in this bookie copies in a
            second; 0 sets no limit.
        autorecovery_check_bytes_per_s: Number of bytes that the digest check of auto-recovery in
            this bookie reads in a second. If this rate is high enough, the check reads every copy
            within 30 days. Otherwise, the event `check_late` reports the delay.
        drain_timeout_ms: Maximum time for which a stopping bookie answers accepted requests.
        log_level: Lowest level of the log lines that are written: `debug`, `info`, `warning` or
            `error`.
    """

    model_config = SettingsConfigDict(
        env_prefix="LEDGERLOG_", extra="forbid", frozen=True, validate_default=True
    )

    directories: Paths
    without_directories: Paths = ()
    allow_storage_expansion: bool = False
    bookie_id: str | None = None
    port: Port = 3181
    grpc_port: Port = 0
    metrics_port: Annotated[int, Field(gt=0, le=65_535)] | None = None
    admin_changes: bool = False
    bind_address: str = "127.0.0.1"
    advertised_address: str | None = None
    rack: PlaceName | None = None
    region: PlaceName | None = None
    insecure: bool = False
    metadata_service_uri: str = SERVICE_URI_DEFAULT
    metadata_wait_ms: TimeMs = 15_000
    session_timeout_ms: TimeMs = 10_000
    file_size_bytes: Annotated[int, Field(ge=8 * MEBIBYTE, le=2_048 * MEBIBYTE)] = 256 * MEBIBYTE
    frame_size_bytes_max: Annotated[int, Field(ge=65_536, le=64 * MEBIBYTE)] = FRAME_SIZE_BYTES_MAX
    in_flight_bytes_max: SizeBytes = 256 * MEBIBYTE
    connections_max: Annotated[int, Field(gt=0)] = 1_024
    stall_timeout_ms: TimeMs = 60_000
    first_request_timeout_ms: TimeMs = 30_000
    watches_max: Annotated[int, Field(gt=0)] = 2_048
    free_bytes_min: Annotated[int, Field(ge=0)] = 64 * MEBIBYTE
    disk_usage_warn: UsedPart = 0.90
    disk_usage_max: UsedPart = 0.95
    disk_usage_low_water: UsedPart = 0.90
    disk_check_interval_ms: Annotated[int, Field(ge=100, le=600_000)] = 10_000
    write_mode: BookieWriteMode = ModeSettings.write_mode
    journal_directory: Paths = ()
    journal_sync_data: bool = ModeSettings.journal_sync_data
    journal_files: Annotated[int, Field(ge=JOURNAL_FILES_MIN, le=64)] = ModeSettings.journal_files
    checkpoint_interval_ms: Annotated[int, Field(ge=100, le=600_000)] = (
        ModeSettings.checkpoint_interval_ms
    )
    group_wait_ms: Annotated[int, Field(ge=0, le=1_000)] = ModeSettings.group_wait_ms
    change_interval_ms: Annotated[int, Field(ge=100, le=600_000)] = 60_000
    allow_lost_directory: bool = False
    gc_interval_ms: Annotated[int, Field(ge=1_000, le=86_400_000)] = 600_000
    release_wait_ms: Annotated[int, Field(ge=0, le=2_592_000_000)] = 86_400_000
    compaction_minor_percent: Percent = 20
    compaction_major_percent: Percent = 80
    compaction_minor_interval_ms: Annotated[int, Field(ge=0, le=2_592_000_000)] = 3_600_000
    compaction_major_interval_ms: Annotated[int, Field(ge=0, le=2_592_000_000)] = 86_400_000
    compaction_bytes_per_s: Annotated[int, Field(ge=0)] = 32 * MEBIBYTE
    scrub_interval_ms: Annotated[int, Field(ge=0, le=31_536_000_000)] = 604_800_000
    scrub_bytes_per_s: Annotated[int, Field(ge=0)] = 8 * MEBIBYTE
    repair_bytes_per_s: Annotated[int, Field(ge=0)] = 32 * MEBIBYTE
    repair_idle_ms: TimeMs = 600_000
    repair_stuck_ms: TimeMs = 600_000
    autorecovery: bool = False
    autorecovery_bytes_per_s: Annotated[int, Field(ge=0)] = 0
    autorecovery_check_bytes_per_s: Annotated[int, Field(ge=65_536)] = 16 * MEBIBYTE
    drain_timeout_ms: TimeMs = 5_000
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of settings. Each source overrides the sources after it."""
        assert isinstance(init_settings, InitSettingsSource)
        given = dict(init_settings.init_kwargs)
        from_file = given.pop("from_file", {})
        return (
            InitSettingsSource(settings_cls, init_kwargs=given),
            env_settings,
            InitSettingsSource(settings_cls, init_kwargs=from_file),
        )

    @field_validator("directories")
    @classmethod
    def _directories_are_usable(cls, directories: tuple[Path, ...]) -> tuple[Path, ...]:
        if not 1 <= len(directories) <= DIRECTORIES_MAX:
            raise ValueError(f"a bookie needs 1 to {DIRECTORIES_MAX} directories")
        resolved = [path.resolve() for path in directories]
        for path in resolved:
            if resolved.count(path) > 1:
                raise ValueError(f"the directory {path} is listed twice")
            if any(parent in resolved for parent in path.parents):
                raise ValueError(f"the directory {path} is inside another directory")
        return directories

    @model_validator(mode="after")
    def _some_directory_is_used(self) -> Self:
        if not self.places:
            raise ValueError(
                "without_directories has all directories; a bookie needs at least one directory"
            )
        return self

    @model_validator(mode="after")
    def _a_lost_directory_is_the_only_one(self) -> Self:
        if self.allow_lost_directory and len(self.directories) > 1:
            raise ValueError(
                "allow_lost_directory is only for a bookie with one directory; start a bookie with "
                "several directories without its lost directory: set without_directories"
            )
        return self

    @model_validator(mode="after")
    def _journal_fits_the_mode(self) -> Self:
        is_journal = self.write_mode is BookieWriteMode.JOURNAL
        journals = self.journal_directory
        if is_journal and not journals:
            raise ValueError("write_mode journal needs a journal_directory; set one")
        if not is_journal and journals:
            raise ValueError(
                f"journal_directory is set, but write_mode is {self.write_mode.value}; set "
                "write_mode to journal, or remove journal_directory"
            )
        if not is_journal and not self.journal_sync_data:
            raise ValueError("journal_sync_data is false, but write_mode is not journal")
        if is_journal and len(journals) != len(self.directories):
            raise ValueError(
                f"journal_directory has {len(journals)} directories, but directories has "
                f"{len(self.directories)}: each directory needs a journal directory of its own, in "
                "the same order. They may be on one device"
            )
        resolved = [path.resolve() for path in journals]
        if set(resolved) & {path.resolve() for path in self.directories}:
            raise ValueError("journal_directory must not be the directory of the entries")
        if len(set(resolved)) != len(resolved):
            raise ValueError("journal_directory has a directory twice")
        return self

    @field_validator("bookie_id")
    @classmethod
    def _bookie_id_is_a_name(cls, bookie_id: str | None) -> str | None:
        if bookie_id is not None and (
            not BOOKIE_ID_PATTERN.fullmatch(bookie_id) or bookie_id in (".", "..", "readonly")
        ):
            raise ValueError(
                "a bookie id has 1 to 200 of the characters A-Z a-z 0-9 . _ : - and is not '.', "
                "'..' or 'readonly'"
            )
        return bookie_id

    @model_validator(mode="after")
    def _addresses_fit_together(self) -> Self:
        try:
            address = ipaddress.ip_address(self.bind_address)
        except ValueError:
            raise ValueError(
                f"bind_address {self.bind_address!r} is not an IP address such as 127.0.0.1"
            ) from None
        if not address.is_loopback and not self.insecure:
            raise ValueError(
                f"bind_address {self.bind_address} can be reached from other machines, and traffic "
                "is neither encrypted nor authenticated; set --insecure to allow this, or bind to "
                "127.0.0.1"
            )
        if address.is_unspecified and self.advertised_address is None:
            raise ValueError(
                f"bind_address {self.bind_address} is not an address that a client can use; set "
                "advertised_address to this machine's name or IP address"
            )
        if self.port == 0 and self.bookie_id is None:
            raise ValueError(
                "port 0 selects another port at every start, so bookie_id cannot default to the "
                "address; also set a bookie_id"
            )
        ports = [port for port in (self.port, self.grpc_port, self.metrics_port) if port]
        if len(set(ports)) != len(ports):
            raise ValueError(f"port, grpc_port and metrics_port must differ, got {ports}")
        return self

    @model_validator(mode="after")
    def _limits_fit_together(self) -> Self:
        needed = (
            self.connections_max * CONNECTION_RESERVE_BYTES
            + FRAMES_IN_SHARED_MIN * self.frame_size_bytes_max
        )
        if self.in_flight_bytes_max < needed:
            raise ValueError(
                f"in_flight_bytes_max is {self.in_flight_bytes_max}, but must be at least "
                f"{needed}: {CONNECTION_RESERVE_BYTES} bytes for each of {self.connections_max} "
                f"connections (connections_max), and {FRAMES_IN_SHARED_MIN} times "
                f"frame_size_bytes_max {self.frame_size_bytes_max}"
            )
        if self.file_size_bytes % 4_096:
            raise ValueError(f"file_size_bytes {self.file_size_bytes} is not a multiple of 4096")
        # The largest frame becomes one group, with the lengths and ids of its entries.
        needed = self.frame_size_bytes_max * 3 // 2
        if self.write_mode is BookieWriteMode.JOURNAL and self.file_size_bytes < needed:
            raise ValueError(
                f"file_size_bytes is {self.file_size_bytes}, but must be at least {needed} in "
                "write_mode journal, because a journal file must have room for the largest add: "
                f"1.5 times frame_size_bytes_max {self.frame_size_bytes_max}"
            )
        return self

    @model_validator(mode="after")
    def _disk_thresholds_are_in_order(self) -> Self:
        for name in ("disk_usage_warn", "disk_usage_low_water"):
            value = getattr(self, name)
            if value > self.disk_usage_max:
                raise ValueError(
                    f"{name} is {value}, but must not be above disk_usage_max {self.disk_usage_max}"
                )
        return self

    @property
    def places(self) -> tuple[Place, ...]:
        """The directories that the bookie uses, with their journal directories."""
        journals = self.journal_directory or (None,) * len(self.directories)
        places = map(Place, self.directories, journals)
        return tuple(place for place in places if place.path not in self.without_directories)

    @property
    def host(self) -> str:
        """The address that is registered for clients."""
        return self.advertised_address or self.bind_address


def load_settings(
    config: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> BookieSettings:
    """Return the settings from command line, environment, file and defaults.

    Args:
        config: TOML file with the keys of `BookieSettings` at its top level.
        overrides: Values from the command line, which override all other values.

    Raises:
        ConfigurationError: A setting is wrong. The error contains the key, the value and the
            reason.
    """
    from_file = {} if config is None else _read_toml(config)
    try:
        return BookieSettings(from_file=from_file, **(overrides or {}))  # type: ignore[call-arg]
    except ValidationError as error:
        raise _explained(error) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"the configuration file {path} cannot be read: {error.strerror}", path=str(path)
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the configuration file {path} is not TOML: {error}", path=str(path)
        ) from None


def _explained(error: ValidationError) -> ConfigurationError:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"][:1])
    value = first.get("input")
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        known = ", ".join(sorted(BookieSettings.model_fields))
        message = f"unknown setting {key} = {value!r}; the settings are: {known}"
    elif first["type"] == "missing":
        option = "directory" if key == "directories" else key.replace("_", "-")
        message = (
            f"setting {key} is missing; set it with --{option}, in the file or as "
            f"LEDGERLOG_{key.upper()}"
        )
    elif key:
        message = f"setting {key} = {value!r}: {reason}"
    else:
        message = f"the settings are wrong: {reason}"
    return ConfigurationError(message, key=key, value=str(value) if key else "", reason=reason)
