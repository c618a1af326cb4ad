"""Mistakes in the parts of logs for tables: expected versions, new logs, columns and metadata."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

COMMIT = "ledgerlog_spark/protocol/log/commit"
ARROW = "ledgerlog_spark/arrow"
COMMITTING = "ledgerlog_spark/log/committing"

_VERSIONS = [
    Mutation(
        "later_version_than_expected_is_fine",
        f"{COMMIT}/plan.py",
        "if expected_version is None or head.version == expected_version:",
        "if expected_version is None or head.version >= expected_version:",
        "a commit replaces rows of a version that its statement did not read",
    ),
    Mutation(
        "append_without_rows_expects_nothing",
        f"{COMMIT}/plan.py",
        "return self.is_bare and not self.is_first and self.expected_version is None",
        "return self.is_bare and not self.is_first",
        "a statement that read an old version succeeds, if it has no rows",
    ),
    Mutation(
        "nothing_is_committed_before_the_version_is_compared",
        f"{COMMIT}/commit.py",
        "        check_expected(head, self._request.expected_version)\n"
        "        if self._request.is_nothing_for(head):",
        "        if self._request.ranges:\n"
        "            check_expected(head, self._request.expected_version)\n"
        "        if self._request.is_nothing_for(head):",
        "an overwrite by no rows empties a version that its statement did not read",
    ),
    Mutation(
        "kept_state_has_the_expected_version",
        f"{COMMIT}/result.py",
        "        if request.expected_version is not None:\n            return False\n",
        "",
        "an append of no rows trusts the version that an earlier commit left",
    ),
    Mutation(
        "replay_begins_as_a_conflict",
        f"{COMMITTING}/commits.py",
        "        if not is_named:  # a batch of a named producer may be in the log already\n"
        "            check_expected(planned.head, expected_version)\n",
        "        check_expected(planned.head, expected_version)\n",
        "a job that is run again after its commit fails because of its own version",
    ),
    Mutation(
        "job_forgets_the_expected_version",
        f"{COMMITTING}/commits.py",
        "            expected_version=job.expected_version,\n",
        "",
        "the version is compared when the job begins, and not when it commits",
    ),
    Mutation(
        "restore_forgets_the_expected_version",
        f"{COMMIT}/restore.py",
        "            expected_version=restore.expected_version,\n",
        "",
        "a restore replaces a version that its caller did not read",
    ),
]

_NEW_LOGS = [
    Mutation(
        "log_without_a_commit_is_unused",
        f"{COMMITTING}/new_log.py",
        "return head.version == 0 and created is not None and created.token == head.token",
        "return head.version == 0",
        "a failed write deletes a log whose properties were changed",
    ),
    Mutation(
        "producer_of_a_commit_is_deleted",
        f"{COMMITTING}/new_log.py",
        "if found.value.runs != (job.run,) or found.value.last_batch_id != NO_BATCH:",
        "if found.value.runs != (job.run,):",
        "an abort after the commit forgets which batch was committed",
        equivalent="the head of a log with a commit has changed, so this line is never reached",
    ),
    Mutation(
        "producer_of_another_run_is_deleted",
        f"{COMMITTING}/new_log.py",
        "if found.value.runs != (job.run,) or found.value.last_batch_id != NO_BATCH:",
        "if found.value.last_batch_id != NO_BATCH:",
        "a failed write ends the run that took over its producer",
    ),
    Mutation(
        "staged_ledgers_of_a_failed_write_keep_the_log",
        f"{COMMITTING}/new_log.py",
        "    await host.run(StagedSweep(host.name, app=job.app, staging_ttl_ms=-1))\n",
        "",
        "a failed write with rows leaves its log",
    ),
    Mutation(
        "deletion_does_not_look_for_producers",
        f"{COMMITTING}/new_log.py",
        "state.version, producers=producers)",
        "state.version)",
        "a failed write deletes the log of a job that has begun",
    ),
    Mutation(
        "log_with_producers_is_tried_again",
        f"{COMMITTING}/new_log.py",
        "                if {*await host.store.producers.names(host.log_id)} - {*producers}:\n"
        "                    return False\n",
        "",
        "a failed write changes nothing, twenty times",
        equivalent="only the number of requests differs",
    ),
    Mutation(
        "lost_deletion_is_an_error",
        f"{COMMITTING}/new_log.py",
        "            except MetadataUnknownError:\n"
        "                await retries.after(MetadataOutcome.UNKNOWN, is_of_head=True)\n",
        "            except MetadataUnknownError:\n                raise\n",
        "a failed write leaves its log after a lost reply",
    ),
    Mutation(
        "every_job_deletes_its_log",
        f"{COMMITTING}/commits.py",
        "        if job.is_log_new:\n            await delete_new_log",
        "        if True:\n            await delete_new_log",
        "an aborted job deletes a log that was created for others",
    ),
    Mutation(
        "new_producer_waits_for_a_deleted_log",
        "ledgerlog_spark/metadata/logs/producers.py",
        "            if not is_gone:\n                raise\n",
        "            raise\n",
        "a job that begins on a deleted log tries a hundred times",
    ),
    Mutation(
        "node_above_the_producers_stays",
        "ledgerlog_spark/metadata/logs/producers.py",
        "return [*operations, znodes.DeleteNode(self._paths.producers(log_id))]",
        "return operations",
        "a failed write deletes the log of a job that has begun",
    ),
]

_COLUMNS = [
    Mutation(
        "columns_without_rows_are_nothing",
        f"{COMMIT}/plan.py",
        "return self._appends_nothing and not self.changes_schema",
        "return self._appends_nothing",
        "columns are not added if the rows that bring them are none",
    ),
    Mutation(
        "every_empty_append_is_a_version",
        f"{COMMIT}/plan.py",
        "return bool(self.schema) and self.schema_id != self.base_schema_id",
        "return bool(self.schema)",
        "an append of no rows and no columns makes a version",
    ),
    Mutation(
        "columns_that_others_added_are_added_once_more",
        f"{COMMIT}/plan.py",
        "return self._appends_nothing and self.schema == current_schema",
        "return False",
        "a version is made that changes nothing",
    ),
    Mutation(
        "columns_in_an_old_head_are_a_result",
        f"{COMMIT}/commit.py",
        "return nothing if self._is_synced else None",
        "return nothing",
        "columns that another process has replaced are taken for columns of the log",
    ),
    Mutation(
        "added_columns_expect_no_version",
        f"{COMMITTING}/schema_commits.py",
        "head.version if changed.is_exact else expected_version",
        "head.version if changed.is_exact else None",
        "columns are added to a version that the caller did not read",
    ),
    Mutation(
        "columns_of_others_are_an_error",
        f"{COMMITTING}/schema_commits.py",
        "if expected_version is not None or attempt == ATTEMPTS_MAX:",
        "if True:",
        "of two calls that add columns at the same time one fails",
    ),
]

_DEFINITIONS = [
    Mutation(
        "text_of_n_characters_is_too_long",
        f"{ARROW}/char_lengths.py",
        "if longest is None or longest <= length:",
        "if longest is None or longest < length:",
        "texts as long as their column are cut and copied for nothing",
        equivalent="no character follows the n-th, so the cut text is the same",
    ),
    Mutation(
        "texts_are_cut",
        f"{ARROW}/char_lengths.py",
        'if pc.any(pc.not_equal(_trimmed(pc.utf8_slice_codeunits(array, length)), "")).as_py():',
        "if False:",
        "a text that is too long loses its end",
    ),
    Mutation(
        "lengths_are_bytes",
        f"{ARROW}/char_lengths.py",
        "longest = pc.max(pc.utf8_length(array)).as_py()",
        "longest = pc.max(pc.binary_length(array)).as_py()",
        "a text of long characters is measured again",
        equivalent="only texts that are too long have characters after the n-th",
    ),
    Mutation(
        "char_is_not_filled",
        f"{ARROW}/char_lengths.py",
        'return pc.utf8_rpad(_checked_varchar(array, length=length, column=column), length, " ")',
        "return _checked_varchar(array, length=length, column=column)",
        "a char is compared as a shorter text",
    ),
    Mutation(
        "lengths_below_a_column_are_not_checked",
        f"{ARROW}/char_lengths.py",
        "    if isinstance(data_type, dict):\n        return _nested_check",
        "    if isinstance(data_type, dict):\n        return None\n        return _nested_check",
        "an element of an array may have any length",
    ),
    Mutation(
        "lengths_are_not_checked",
        "ledgerlog_spark/datasource/write/task.py",
        "stored = self._lengths.checked(self._conformer.conform(batch))",
        "stored = self._conformer.conform(batch)",
        "save stores a text that is too long",
    ),
    Mutation(
        "missing_default_is_null",
        "ledgerlog_spark/datasource/write/job.py",
        "        reject_missing_defaults(before, schema_json, log=options.target)\n",
        "",
        "rows that lack a column get null in place of its default",
    ),
    Mutation(
        "default_for_older_rows_is_kept",
        f"{ARROW}/schema_evolution.py",
        "fields.append(_without_existence_default(field))",
        "fields.append(field)",
        "a log reports a default for its older rows, but they read null",
    ),
    Mutation(
        "default_is_added_to_rows",
        f"{COMMITTING}/columns.py",
        "if head.start_offset != head.end_offset:",
        "if head.version == 0:",
        "older rows read null in place of the default of a new column",
    ),
    Mutation(
        "rows_come_before_a_default",
        f"{COMMITTING}/schema_commits.py",
        "head.version if changed.is_exact else expected_version",
        "expected_version",
        "rows that come before a column with a default read null",
    ),
    Mutation(
        "new_columns_lose_the_comment",
        "ledgerlog_spark/datasource/write/job.py",
        "return current if after == before else stored_schema(after, comment=comment)",
        "return current if after == before else stored_schema(after)",
        "a write with mergeSchema erases the comment of the log",
    ),
    Mutation(
        "varchar_of_an_older_log_stays",
        f"{ARROW}/spark_types.py",
        'if "char(" in text else text',
        'if "char(" in "" else text',
        "a log of an older release takes no rows",
    ),
]

MUTATIONS = [*_VERSIONS, *_NEW_LOGS, *_COLUMNS, *_DEFINITIONS]
