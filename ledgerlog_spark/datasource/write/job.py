"""Begins the job of a write on the driver: opens the log, and checks its schema and properties."""

from __future__ import annotations

from ledgerlog_spark.arrow.schema_evolution import merge, storable
from ledgerlog_spark.arrow.spark_types import spark_schema, stored_schema
from ledgerlog_spark.datasource.cluster import password_in
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    ConfigurationError,
    LogKindError,
    LogNotFoundError,
    SchemaMismatchError,
)
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.protocol.log.password import check_password
from ledgerlog_spark.protocol.log.properties import LogProperties, option_of
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind, WriteMode

BEGIN_ATTEMPTS_MAX = 10


def begin_job(
    client: BlockingLogClient, options: SourceOptions, schema_json: str, *, overwrite: bool
) -> Job:
    """Begin the job of one write. Create the log if it does not exist.

    Raises:
        LogNotFoundError: The log does not exist, and `createIfMissing` is false.
        LogKindError: The log is a leader log.
        SchemaMismatchError: Rows of this schema cannot be stored in the log.
        ConfigurationError: The options differ from the properties of the existing log.
        ConcurrentCommitError: The log is not the log, or not at the version, that the options
            expect.
        UnauthorizedError: The log has another password.
        NotEnoughBookiesError: The cluster has fewer writable bookies than the log's ensemble. The
            message has both numbers.
    """
    schema = stored_schema(storable(schema_json))
    password = password_in(options.password_file)
    mode = WriteMode.OVERWRITE if overwrite else WriteMode.APPEND
    log = opened(client, options, schema)
    for _ in range(BEGIN_ATTEMPTS_MAX):
        state = log.state()
        check_head(options, state.head)
        check_password(options.target, state.head, password)
        job = log.begin(
            schema=schema_after(state, schema_json, options, overwrite=overwrite),
            mode=mode,
            app=options.txn_app_id,
            batch_id=options.txn_version or 0,
            overwrite_if_changed=options.overwrite_if_changed,
            password=password,
            expected_version=options.expected_version,
        )
        # The commit detects changes after `begin`. The check here detects changes shortly before
        # `begin`. The first commit may keep the id of the schema, so the check also compares
        # whether the log has a commit.
        is_of_first = (job.planned_version == 0) == (state.head.version == 0)
        if job.base_schema_id == state.head.schema_id and is_of_first:
            if not job.is_replay:
                check_bookies(client, LogProperties.from_mapping(state.head.properties))
            return job
    raise ConcurrentCommitError(
        f"the schema of log {options.target!r} was changed by other processes at every attempt",
        log=options.target,
    )


def opened(client: BlockingLogClient, options: SourceOptions, schema: bytes) -> BlockingLog:
    """Open the log. If the log does not exist, create it with the schema of the rows.

    The log is created even for a write without rows, but not if the cluster has too few bookies
    for its ledgers. Raises the errors of `begin_job`.
    """
    logs = client.logs
    try:
        log = logs.open(options.target)
    except LogNotFoundError as error:
        for name, is_set in (
            ("expectedVersion", options.expected_version is not None),
            ("expectedLogId", options.expected_log_id is not None),
        ):
            if is_set:
                raise LogNotFoundError(
                    f'log {options.target!r} does not exist, and the option "{name}" requires it: '
                    "it was deleted after it was read",
                    log=options.target,
                ) from error
        if not options.create_if_missing:
            raise LogNotFoundError(
                f'log {options.target!r} does not exist, and the option "createIfMissing" is false',
                log=options.target,
            ) from error
    else:
        check_log_id(options, log)
        return log
    properties = _properties(options)
    check_bookies(client, LogProperties.from_mapping(properties))
    return logs.open_or_create(options.target, schema=schema, properties=properties)


def check_log_id(options: SourceOptions, log: BlockingLog) -> None:
    """Raise if the name belongs to another log than the log that the write expects.

    All later steps of the write use the id of the log, so they need not compare it.
    """
    if options.expected_log_id not in {None, log.log_id}:
        raise ConcurrentCommitError(
            f"log {options.target!r} has the id {log.log_id}, and the write expects "
            f"{options.expected_log_id}: it was deleted and re-created after it was read; nothing "
            "was changed: read the new log, then repeat the write",
            log=options.target,
            log_id=log.log_id,
            expected_log_id=options.expected_log_id,
        )


def check_bookies(client: BlockingLogClient, properties: LogProperties) -> None:
    """Raise `NotEnoughBookiesError` if the cluster has too few bookies for a ledger of the log."""
    client.run(lambda inner: inner.check_bookies(properties.quorum))


def schema_after(
    state: LogState, schema_json: str, options: SourceOptions, *, overwrite: bool
) -> bytes:
    """The log's schema after this write. If the write adds no column, its bytes do not change.

    Before the first commit and with `overwriteSchema`, the log has no other rows. Then the result
    is the schema of the rows alone, even if a failed write created the log with another schema.
    """
    current = state.schema
    replaces = overwrite and options.overwrite_schema
    if current is None or state.head.version == 0 or replaces:
        return stored_schema(storable(schema_json))
    before = spark_schema(current)
    try:
        after = merge(before, schema_json, log=options.target, add_columns=options.merge_schema)
    except SchemaMismatchError as error:
        if not overwrite:
            raise
        raise SchemaMismatchError(
            f'{error.message} To replace the log\'s columns too, set "overwriteSchema" to "true".',
            **error.fields,
        ) from error
    return current if after == before else stored_schema(after)


_PROPERTIES = (
    "ensemble_size", "write_quorum", "ack_quorum", "digest_type", "retention_ms",
    "retention_bytes", "version_retention_ms", "deleted_retention_ms", "staging_ttl_ms",
    "txn_retention_ms",
)  # fmt: skip
"""The fields of `SourceOptions` that set properties of a new log."""


def _properties(options: SourceOptions) -> dict[str, str]:
    """The properties that the options set, by name.

    With `ensembleSize`, quorums that are not given are never larger than the ensemble. So
    `ensembleSize` 1 alone means one copy.
    """
    requested = {
        option_of(name): str(value)
        for name in _PROPERTIES
        if (value := getattr(options, name)) is not None
    }
    if options.ensemble_size is not None:
        defaults = LogProperties()
        write_quorum = min(defaults.write_quorum, options.ensemble_size)
        requested.setdefault("writeQuorum", str(write_quorum))
        ack_quorum = min(defaults.ack_quorum, int(requested["writeQuorum"]))
        requested.setdefault("ackQuorum", str(ack_quorum))
    return requested


def check_head(options: SourceOptions, head: LogHead) -> None:
    """Raise an error for a leader log, or if the options differ from the log's properties."""
    if head.kind is not LogKind.TRANSACTIONAL:
        raise LogKindError(
            f"log {options.target!r} is a {head.kind.name.lower()} log: write to it through its "
            "leader",
            log=options.target,
        )
    known = LogProperties.from_mapping(head.properties)
    requested = LogProperties.from_mapping({**head.properties, **_properties(options)})
    for name in _PROPERTIES:
        wanted, found = getattr(requested, name), getattr(known, name)
        if wanted != found:
            raise ConfigurationError(
                f'option "{option_of(name)}" is {wanted}, but log {options.target!r} has {found}. '
                "Leave the option out, because it only applies to new logs. `ledgerlog logs set` "
                "changes the property of this log.",
                option=option_of(name),
            )
