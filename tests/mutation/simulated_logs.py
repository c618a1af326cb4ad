"""Mistakes that the simulations of logs look for: passwords, columns, standstills, orphans."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

PROTOCOL = "ledgerlog_spark/protocol"
LOG = "ledgerlog_spark/log"

_PASSWORDS = [
    Mutation(
        "password_of_a_commit_is_not_compared",
        f"{PROTOCOL}/log/commit/commit.py",
        "        check_password(self.log, head, self._request.password)\n",
        "",
        "rows of two passwords are listed together, and no reader can read all of them",
    ),
    Mutation(
        "password_of_older_heads_is_not_compared",
        f"{PROTOCOL}/log/commit/commit.py",
        "                compare_password(self.log, listed, self._request.password)\n",
        "",
        "a log that an earlier release wrote takes rows of another password",
    ),
    Mutation(
        "password_is_in_the_head",
        f"{PROTOCOL}/log/password.py",
        "hmac.digest(salt, password, 'sha256').hex()",
        "password.decode(errors='replace')",
        "a printed head contains the log's password",
    ),
]

_COLUMNS = [
    Mutation(
        "first_commit_takes_columns_away",
        f"{PROTOCOL}/log/commit/plan.py",
        "if request.is_first and is_new and head.version > 0:",
        "if False:",
        "of two first commits the second takes the columns of the first one's rows away",
    ),
    Mutation(
        "first_commit_without_rows_is_nothing",
        f"{PROTOCOL}/log/commit/plan.py",
        "return self.is_bare and not self.is_first and self.expected_version is None",
        "return self._appends_nothing and self.expected_version is None",
        "the columns of a first write without rows are not stored",
    ),
    Mutation(
        "columns_of_the_moment_are_taken",
        f"{PROTOCOL}/log/commit/plan.py",
        "if head.schema_id != NO_SCHEMA and current_schema == request.schema:",
        "if head.schema_id != NO_SCHEMA:",
        "rows are listed under a schema that they do not have",
    ),
    Mutation(
        "rows_of_a_leader_are_not_compared",
        f"{LOG}/leader/rows.py",
        "            self._splitter.check(decode_schema(appended))\n",
        "            pass\n",
        "a leader of other columns deposes the one that there is",
    ),
]

_READERS = [
    Mutation(
        "view_has_older_versions_behind_newer_ones",
        f"{PROTOCOL}/log/read/view.py",
        "            versions = (*older, *versions)\n",
        "            versions = (*versions, *older)\n",
        "a stream takes an old version for the newest",
    ),
    Mutation(
        "view_skips_a_version",
        f"{PROTOCOL}/log/read/view.py",
        "if known is None else known + 1",
        "if known is None else known + 2",
        "a stream does not see that a version was an overwrite",
    ),
    Mutation(
        "time_travel_to_the_oldest",
        f"{LOG}/reading/version_at.py",
        "return found[-1]",
        "return found[0]",
        "a read as of a time gets the oldest version that there is",
    ),
]

_STANDING_STILL = [
    Mutation(
        "takeover_stands_still_after_its_write",
        f"{PROTOCOL}/log/machine.py",
        "        return [self._out]\n",
        "        return [] if isinstance(request, Sync) and self._has_written else [self._out]\n",
        "a run that takes over its producer neither ends nor sends a request",
    ),
    Mutation(
        "leader_stands_still_after_a_failed_attempt",
        f"{PROTOCOL}/leader/leader.py",
        "return self._advance() if any(a.wake(event.request) for a in self._attempts) else []",
        "return []",
        "a leader whose attempt at a ledger failed makes no other",
    ),
    Mutation(
        "broken_ledger_is_kept_secret",
        f"{LOG}/leader/ledger_writer.py",
        "            self._report(LedgerBroken(self.handle.id, exception))",
        "            del exception",
        "appends wait forever for a ledger that accepts none",
    ),
    Mutation(
        "leader_hears_of_failed_appends_only",
        f"{LOG}/leader/host.py",
        "                on_failed=listener.set_exception,\n",
        "                on_failed=lambda _: None,\n",
        "a ledger that fails between two appends stays open, and its end unread",
    ),
    Mutation(
        "leader_gives_up_though_nothing_waits",
        f"{PROTOCOL}/leader/leader.py",
        "is_needed = self._ledgers.current.is_broken and not self._appends.is_empty",
        "is_needed = self._ledgers.current.is_broken",
        "a leader ends for an outage in which nothing was appended",
    ),
    Mutation(
        "append_pays_for_failures_before_it",
        f"{PROTOCOL}/leader/leader.py",
        "        if ledgers.current.is_broken and is_first:\n            self._forgive()\n",
        "",
        "the first append after an outage ends the leader at the next failure",
    ),
    Mutation(
        "tail_reads_the_same_list_again",
        f"{LOG}/reading/record_reader.py",
        "                changes.is_list_stale = False\n                view = await",
        "                changes.is_list_stale = False\n                await",
        "a tail stands still at the end of the ledger that was open when it began",
    ),
]

_LEADERS = [
    Mutation(
        "appends_that_were_sent_fail_for_certain",
        f"{LOG}/leader/leader.py",
        "unknown=range(first_unknown, first_unsent)",
        "unknown=range(0)",
        "records that are in the log are appended again",
    ),
    Mutation(
        "deleted_leader_log_leaves_its_orphans",
        f"{LOG}/maintenance/sweeper.py",
        "        if self._head.kind is LogKind.LEADER:\n",
        "        if False:\n",
        "ledgers that a dead leader never listed stay on the bookies forever",
    ),
]

MUTATIONS = [*_PASSWORDS, *_COLUMNS, *_READERS, *_STANDING_STILL, *_LEADERS]
