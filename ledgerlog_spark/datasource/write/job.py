"""Begins the job of a write on the driver: opens the log, and checks its schema and properties."""

from __future__ import annotations

import logging

from ledgerlog_spark.arrow.schema_evolution import merge, reject_missing_defaults, storable
from ledgerlog_spark.arrow.spark_types import comment_of, spark_schema, stored_schema
from ledgerlog_spark.datasource.cluster import password_in
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    ConfigurationError,
    LedgerLogError,
    LogExistsError,
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

_logger = logging.getLogger(__name__)


def begin_job(
    client: BlockingLogClient, options: SourceOptions, schema_json: str, *, overwrite: bool
) -> Job:
    """Begin the job of one write. Create the log if it does not exist.

    If the job cannot begin, the log that was created for it is deleted.

    Raises:
        LogNotFoundError: The log does not exist, and `createIfMissing` is false.
        LogExistsError: The log exists, and `errorIfExists` is true.
        LogKindError: The log is a leader log.
        SchemaMismatchError: Rows of this schema cannot be stored in the log.
        ConfigurationError: The options differ from the properties of the existing log.
        ConcurrentCommitError: The log has another id or another version than the options expect.
        UnauthorizedError: The log has another password.
        NotEnoughBookiesError: The cluster has fewer writable bookies than the log's ensemble. The
            message contains both numbers.
    """
    schema = stored_schema(storable(schema_json))
    begun = _Beginning(client, options, schema_json, overwrite=overwrite)
    for attempt in range(1, BEGIN_ATTEMPTS_MAX + 1):
        log, is_new = opened(client, options, schema)
        try:
            return begun.job(log, is_new=is_new)
        except LogNotFoundError:
            # The log was found, but the write that had created it failed and deleted it.
            if is_new or not options.may_create or attempt == BEGIN_ATTEMPTS_MAX:
                raise
    raise AssertionError(BEGIN_ATTEMPTS_MAX)


class _Beginning:
    """Begins the job of a write, and stores the parameters of this write."""

    def __init__(
        self,
        client: BlockingLogClient,
        options: SourceOptions,
        schema_json: str,
        *,
        overwrite: bool,
    ) -> None:
        self._client = client
        self._options = options
        self._schema_json = schema_json
        self._overwrite = overwrite
        self._password = password_in(options.password_file)

    def job(self, log: BlockingLog, *, is_new: bool) -> Job:
        """Begin the job on this log.

        If the job cannot begin, delete the log if it was created for the job.
        """
        job: Job | None = None
        try:
            job = self._begun(log, is_new=is_new)
            if not job.is_replay:
                check_bookies(self._client, LogProperties.from_mapping(job.properties))
        except BaseException:
            if is_new:
                delete_log_of(log, job)
            raise
        return job

    def _begun(self, log: BlockingLog, *, is_new: bool) -> Job:
        options = self._options
        state = log.state()
        check_head(options, state.head)
        check_password(options.target, state.head, self._password)
        return log.begin(
            schema=schema_after(state, self._schema_json, options, overwrite=self._overwrite),
            mode=WriteMode.OVERWRITE if self._overwrite else WriteMode.APPEND,
            app=options.txn_app_id,
            batch_id=options.txn_version or 0,
            overwrite_if_changed=options.overwrite_if_changed,
            password=self._password,
            planned=state,
            expected_version=0 if options.error_if_exists else options.expected_version,
            is_log_new=is_new,
        )


def opened(
    client: BlockingLogClient, options: SourceOptions, schema: bytes
) -> tuple[BlockingLog, bool]:
    """Open the log. If the log does not exist, create it with the schema of the rows.

    Returns the log, and whether this call created the log. Even a write without rows creates the
    log. If the cluster has too few bookies for a ledger, the log is not created. Raises the errors
    of `begin_job`.
    """
    if options.error_if_exists:
        return _only_created(client, options, schema)
    logs = client.logs
    try:
        log = logs.open(options.target)
    except LogNotFoundError as error:
        _check_may_create(options, error)
    else:
        check_log_id(options, log)
        return log, False
    try:
        return _created(client, options, schema), True
    except LogExistsError:
        return logs.open(options.target), False


def _created(client: BlockingLogClient, options: SourceOptions, schema: bytes) -> BlockingLog:
    properties = _properties(options)
    check_bookies(client, LogProperties.from_mapping(properties))
    return client.logs.create(options.target, schema=schema, properties=properties)


def _only_created(
    client: BlockingLogClient, options: SourceOptions, schema: bytes
) -> tuple[BlockingLog, bool]:
    """Create the log, or raise an error if a log exists that does not contain this write's batch.

    This function implements LOGS.md#K18.
    """
    try:
        return _created(client, options, schema), True
    except LogExistsError as error:
        log = client.logs.open(options.target)
        app, batch_id = options.txn_app_id, options.txn_version or 0
        if app is not None and log.has_batch(app, batch_id):
            return log, False
        raise LogExistsError(
            f'log {options.target!r} already exists, and the option "errorIfExists" is true; '
            f"nothing was changed{_how_to_reuse(log)}",
            log=options.target,
        ) from error


def _how_to_reuse(log: BlockingLog) -> str:
    if log.state().head.version > 0:
        return ""
    return (
        ". The log is empty and has no commit: the write that created it is still running, or was "
        f"killed. Append to the log, or delete it with `ledgerlog logs delete {log.name}`"
    )


def _check_may_create(options: SourceOptions, error: LogNotFoundError) -> None:
    """Raise an error if the options require a log that exists."""
    for name, is_set in (
        ("expectedVersion", options.expected_version is not None),
        ("expectedLogId", options.expected_log_id is not None),
    ):
        if is_set:
            raise LogNotFoundError(
                f'log {options.target!r} does not exist, but the option "{name}" requires it: '
                "the log was deleted after the job read it",
                log=options.target,
            ) from error
    if not options.create_if_missing:
        raise LogNotFoundError(
            f'log {options.target!r} does not exist, and the option "createIfMissing" is false',
            log=options.target,
        ) from error


def delete_log_of(log: BlockingLog, job: Job | None) -> None:
    """Delete the log that a failed write created, if nothing else uses it (LOGS.md#K19).

    This function raises no error, because the caller raises the error of the write. If the metadata
    store fails, the empty log remains, and a later write accepts it.
    """
    try:
        if job is None:
            log.delete_if_unused()
        else:
            log.abort(job)
    except LedgerLogError as error:
        _logger.warning("the empty log %s could not be deleted: %s", log.name, error)


def check_log_id(options: SourceOptions, log: BlockingLog) -> None:
    """Raise an error if the log with this name does not have the id that the write expects.

    Later steps of the write need no such check, because they find the log by its id.
    """
    if options.expected_log_id not in {None, log.log_id}:
        raise ConcurrentCommitError(
            f"log {options.target!r} has the id {log.log_id}, but the write expects "
            f"{options.expected_log_id}: the log was deleted and re-created after the job read it. "
            "Nothing was changed. Read the new log, then repeat the write",
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
    """Return the log's schema after this write.

    Usually, the schema changes only if the write adds columns. But after a first commit or an
    overwrite with `overwriteSchema`, the log has only the rows of this write. In these cases, the
    result is the schema of these rows alone, even if a failed write created the log with another
    schema.
    """
    current = state.schema
    replaces = overwrite and options.overwrite_schema
    if current is None or state.head.version == 0 or replaces:
        kept = comment_of(current) if replaces and current is not None else ""
        comment = kept if options.log_comment is None else options.log_comment
        return stored_schema(storable(schema_json), comment=comment)
    comment = comment_of(current)
    if options.log_comment not in {None, comment}:
        raise ConfigurationError(
            f'option "logComment" is {options.log_comment!r}, and log {options.target!r} has the '
            f"comment {comment!r}. Leave the option out: it applies to new logs, and to an "
            'overwrite with "overwriteSchema".',
            option="logComment",
        )
    before = spark_schema(current)
    try:
        after = merge(before, schema_json, log=options.target, add_columns=options.merge_schema)
        reject_missing_defaults(before, schema_json, log=options.target)
    except SchemaMismatchError as error:
        if not overwrite:
            raise
        raise SchemaMismatchError(
            f'{error.message} To replace the log\'s columns too, set "overwriteSchema" to "true".',
            **error.fields,
        ) from error
    return current if after == before else stored_schema(after, comment=comment)


_PROPERTIES = (
    "ensemble_size", "write_quorum", "ack_quorum", "digest_type", "retention_ms",
    "retention_bytes", "version_retention_ms", "deleted_retention_ms", "staging_ttl_ms",
    "txn_retention_ms",
)  # fmt: skip
"""The fields of `SourceOptions` that set properties of a new log."""


def _properties(options: SourceOptions) -> dict[str, str]:
    """Return the properties that the options set, as a mapping from names to values.

    If the option `ensembleSize` is set, a quorum that no option sets is at most the ensemble size.
    So if only `ensembleSize` is set, and is 1, there is one copy of each entry.
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
