"""Mistakes in what tables need of logs: expected versions, new logs, columns and their metadata."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

COMMIT = "ledgerlog_spark/protocol/log/commit"
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
        "return self._appends_nothing and not self.is_first and self.expected_version is None",
        "return self._appends_nothing and not self.is_first",
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
        "            if not is_named:  # a batch of a named producer may be in the log already\n"
        "                check_expected(planned.head, expected_version)\n",
        "            check_expected(planned.head, expected_version)\n",
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

MUTATIONS = [*_VERSIONS]
