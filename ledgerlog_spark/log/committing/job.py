"""The data that the tasks and the commit of a batch share. Spark sends it to their processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ledgerlog_spark.errors import ConfigurationError, LocalProtocolError
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.properties import JOB_APP_PREFIX
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import NO_SCHEMA, WriteMode

APP_SIZE_BYTES_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The part of a job that does not depend on its producer. It can be pickled.

    Attributes:
        log: Name of the log.
        log_id: Id of the log.
        mode: Whether the rows are appended, or replace the rows of the log.
        schema: Schema of the rows, as an Arrow schema message.
        schema_id: Id of the schema in the log; None if the log does not have the schema yet.
        base_schema_id: Id of the log's current schema when the job was planned.
        planned_version: The log's version when the job was planned.
        overwrite_if_changed: Whether to overwrite even rows that were committed after
            `planned_version`.
        properties: Properties of the log, as the log stores them.
        password: Password of the ledgers that the job creates.
        since_offset: The lowest offset at which rows of the job may be listed.
        expected_version: The version that the log must have when the job is committed; None if it
            may have any version.
        is_log_new: Whether the log was created for the job. If the job fails, such a log is
            deleted, unless it was changed or another job has begun.
    """

    log: str
    log_id: str
    mode: WriteMode
    schema: bytes = field(repr=False, default=b"")
    schema_id: int | None = None
    base_schema_id: int = NO_SCHEMA
    planned_version: int = 0
    overwrite_if_changed: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    password: bytes = field(repr=False, default=b"")
    since_offset: int = 0
    expected_version: int | None = None
    is_log_new: bool = False

    def job(self, *, app: str, run: str, batch_id: int, kind: JobKind) -> Job:
        """Return the job with this plan for a producer, a run and a batch."""
        planned = {each.name: getattr(self, each.name) for each in fields(self)}
        return Job(**planned, app=app, run=run, batch_id=batch_id, kind=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(JobPlan):
    """One batch of one producer, made by `Log.begin`. It can be pickled.

    Attributes:
        app: Id of the producer. It contains a UUID if the caller gave no name.
        run: Id of the query run, which is different for each start of a job.
        batch_id: Number of the batch. A batch with the same app and id is committed only once.
        kind: The kind of the job. It decides what happens if a batch with this id was committed
            before.
        is_replay: Whether the batch is in the log already. If so, the tasks need not write, and the
            commit does nothing.
    """

    app: str
    run: str
    batch_id: int
    kind: JobKind
    is_replay: bool = False


def plan_job(
    state: LogState,
    *,
    schema: bytes,
    mode: WriteMode,
    overwrite_if_changed: bool = False,
    password: bytes = b"",
    expected_version: int | None = None,
    is_log_new: bool = False,
) -> JobPlan:
    """Return the plan of a batch with rows of `schema`. `state` is the present state of the log."""
    return JobPlan(
        log=state.head.name,
        log_id=state.head.log_id,
        mode=mode,
        schema=schema,
        schema_id=state.schema_id_of(schema) if schema else None,
        base_schema_id=state.head.schema_id,
        planned_version=state.head.version,
        overwrite_if_changed=overwrite_if_changed,
        properties=dict(state.head.properties),
        password=password,
        since_offset=state.head.end_offset,
        expected_version=expected_version,
        is_log_new=is_log_new,
    )


def checked_app(app: str) -> str:
    """Check the name of a producer, and return it."""
    if not 1 <= len(app.encode()) <= APP_SIZE_BYTES_MAX or not app.isprintable():
        raise ConfigurationError(
            f"txnAppId must have 1 to {APP_SIZE_BYTES_MAX} bytes of printable text, got {app!r}",
            key="txnAppId",
        )
    if app.startswith(JOB_APP_PREFIX):
        raise ConfigurationError(
            f"txnAppId {app!r} begins with {JOB_APP_PREFIX!r}, which is reserved for jobs without "
            "a txnAppId: choose another name",
            key="txnAppId",
        )
    return app


def check_generated(job: Job) -> None:
    """Raise LocalProtocolError if the producer of a job has a name that the caller gave."""
    if not job.app.startswith(JOB_APP_PREFIX):
        raise LocalProtocolError(
            f"producer {job.app!r} of log {job.log!r} was named by the caller, so it cannot be "
            "released: nothing has to be done after its last job",
            log=job.log,
            app=job.app,
        )
