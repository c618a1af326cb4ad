"""The driver's part of a write: the log, its schema, the job, the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.protocol.log.password import check_password
from ledgerlog_spark.protocol.log.properties import LogProperties, option_of
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind, WriteMode

if TYPE_CHECKING:
    from ledgerlog_spark.log.blocking.logs import BlockingLog
    from ledgerlog_spark.log.clients import BlockingLogClient

BEGIN_ATTEMPTS_MAX = 10


def begin_job(
    client: BlockingLogClient, options: SourceOptions, schema_json: str, *, overwrite: bool
) -> Job:
    """Begin the job of one write; make the log if it does not exist.

    Raises:
        LogNotFoundError: No such log, and `createIfMissing` is false.
        LogKindError: A leader appends to the log.
        SchemaMismatchError: Rows of this schema cannot be stored in the log.
        ConfigurationError: The options contradict the existing log.
        UnauthorizedError: The log has another password.
        NotEnoughBookiesError: Fewer writable bookies than the log's ensemble; names both numbers.
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
        )
        # The commit checks changes after `begin`. Changes shortly before it are detected here. A
        # first commit may keep the id of the schema. So the rule still holds that the job's rows
        # may have any columns.
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
    """The log, created with the schema of the rows if it does not exist, even without rows.

    It is not made when its ledgers could not be made. Errors as of `begin_job`.
    """
    logs = client.logs
    try:
        return logs.open(options.target)
    except LogNotFoundError as error:
        if not options.create_if_missing:
            raise LogNotFoundError(
                f'log {options.target!r} does not exist, and the option "createIfMissing" is false',
                log=options.target,
            ) from error
    properties = _properties(options)
    check_bookies(client, LogProperties.from_mapping(properties))
    return logs.open_or_create(options.target, schema=schema, properties=properties)


def check_bookies(client: BlockingLogClient, properties: LogProperties) -> None:
    """Raise `NotEnoughBookiesError` unless a ledger of these properties can be made."""
    client.run(lambda inner: inner.check_bookies(properties.quorum))


def schema_after(
    state: LogState, schema_json: str, options: SourceOptions, *, overwrite: bool
) -> bytes:
    """The log's schema after this write, byte for byte the current one when nothing is added.

    Returns the schema of the rows alone if the log has no other rows. This is so before the first
    commit, even if a failed write created the log with another schema, and with `overwriteSchema`.
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
"""Properties of a log that a write may set, by their names in `SourceOptions`."""


def _properties(options: SourceOptions) -> dict[str, str]:
    """The properties in the options, by name, with the quorums that follow from E.

    For a smaller ensemble than the default, all three are smaller: `ensembleSize` 1 alone means
    one copy.
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
    """Raise when options differ from the properties that the log was made with."""
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
                f'option "{option_of(name)}" is {wanted}, and log {options.target!r} was made with '
                f"{found}. "
                "Leave the option out: it applies to new logs only; `ledgerlog logs set` "
                "changes this one.",
                option=option_of(name),
            )
