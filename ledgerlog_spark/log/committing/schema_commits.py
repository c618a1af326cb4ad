"""Commits that change the schema of a log, and contain no rows (LOGS.md#K8)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ledgerlog_spark.client.arguments import check_callback, check_optional, check_type
from ledgerlog_spark.errors import ConcurrentCommitError, LedgerLogError
from ledgerlog_spark.log.committing.columns import (
    SchemaChange,
    check_is_transactional,
    has_defaults,
    with_columns,
)
from ledgerlog_spark.log.committing.commits import LogCommits
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.protocol.log.commit.plan import check_expected
from ledgerlog_spark.protocol.log.commit.result import CommitResult, CommitStatus
from ledgerlog_spark.protocol.log.read.versions import LogState, StateMachine

ATTEMPTS_MAX = 10


class SchemaCommits:
    """Commits changes of the columns of a log, and of the metadata of its columns.

    All methods run on the client's event loop.
    """

    def __init__(self, host: LogHost, commits: LogCommits) -> None:
        self._host = host
        self._commits = commits

    async def add_columns(
        self, schema: bytes, *, expected_version: int | None = None, password: bytes = b""
    ) -> CommitResult:
        """Add columns, and fields of structs, to a transactional log of rows. No row is written.

        The call creates a version with the new columns at the end. The columns are null in the rows
        of earlier versions. If the log has all these columns, the call changes nothing.

        Args:
            schema: The new columns, as an Arrow schema message. A column that the log already has
                must have the same type as in the log, or a type whose values the log's type can
                store.
            expected_version: The version of the log that the caller read. The log is changed only
                if it still has this version. If it is None, the log may have any version.
            password: The password of the log.

        Raises:
            SchemaMismatchError: A column has another type in the log, cannot be stored, or has a
                default that existing rows would need.
            LogKindError: The log is a leader log, whose columns are fixed.
            ConcurrentCommitError: The log is not at the expected version, or other jobs changed the
                columns at every attempt. Nothing was changed.
            LogNotFoundError: The log was deleted.
            UnauthorizedError: The log has another password.
            CommitUnknownError: The outcome is unknown; a retry is safe.
        """
        check_type("schema", schema, bytes)

        def added(state: LogState) -> SchemaChange:
            # A default is allowed only as long as the log has no rows.
            return SchemaChange(with_columns(state, schema), is_exact=has_defaults(schema))

        return await self.change_schema(added, expected_version=expected_version, password=password)

    async def change_schema(
        self,
        change: Callable[[LogState], SchemaChange],
        *,
        expected_version: int | None = None,
        password: bytes = b"",
    ) -> CommitResult:
        """Commit a different schema of a transactional log, without rows.

        If another job commits during the call, `change` is called again with the new version.

        Args:
            change: A function that returns the new schema for a state of the log. If the result is
                the present schema, nothing is committed. Errors of `change` are raised to the
                caller.
            expected_version: The version that the log must have, as in `add_columns`.
            password: The password of the log.

        Raises:
            LogKindError: The log is a leader log, whose columns are fixed.
            ConcurrentCommitError: The log is not at the expected version, or other jobs changed the
                log at every attempt. Nothing was changed.
            LogNotFoundError: The log was deleted.
            UnauthorizedError: The log has another password.
            CommitUnknownError: The outcome is unknown; a retry is safe.
        """
        check_callback(change, "change")
        check_optional("expected_version", expected_version, int)
        check_type("password", password, bytes)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            state = await self._host.run(StateMachine(self._host.name))
            check_is_transactional(state)
            changed, head = change(state), state.head
            check_expected(head, expected_version)
            if changed.schema == state.schema and head.version > 0:
                return CommitResult(CommitStatus.NOTHING_TO_COMMIT, head.version, head.end_offset)
            job = await self._commits.begin(
                schema=changed.schema,
                password=password,
                planned=state,
                expected_version=head.version if changed.is_exact else expected_version,
            )
            try:
                return await self._commits.commit(job, (), is_last=True)
            except ConcurrentCommitError:
                with contextlib.suppress(LedgerLogError):
                    await self._commits.release(job)
                if expected_version is not None or attempt == ATTEMPTS_MAX:
                    raise
        raise AssertionError(ATTEMPTS_MAX)
