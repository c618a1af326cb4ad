"""Mistakes at the limits of ranges and of slices, and after unusual answers."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

OLDER_FORMATS = "ledgerlog_spark/wire/ledger_metadata/older_formats.py"
ROWS = "ledgerlog_spark/protocol/log/state/rows.py"
SLICES = "bookie_server/storage/slices.py"
OPTIONS = "ledgerlog_spark/datasource/options/values.py"
HOST = "ledgerlog_spark/log/host.py"
GRPC = "ledgerlog_spark/transport/grpc"
OVER_TCP = "ledgerlog_spark/transport/v2"

_LOGS = [
    Mutation(
        "known_logs_forget_the_newest",
        "ledgerlog_spark/log/committing/commits.py",
        "self._known.popitem(last=False)",
        "self._known.popitem(last=True)",
        "with more producers than the bound, each commit reads everything again",
    ),
    Mutation(
        "known_logs_keep_one_more",
        "ledgerlog_spark/log/committing/commits.py",
        "while len(self._known) > PRODUCERS_MAX:",
        "while len(self._known) > PRODUCERS_MAX + 1:",
        "more producers are remembered than the bound",
    ),
    Mutation(
        "password_of_a_ledger_that_is_gone_is_empty",
        HOST,
        "            outcome, metadata = MetadataOutcome.GONE, None\n        if metadata is None:",
        "            outcome, metadata = MetadataOutcome.OK, None\n        if metadata is None:",
        "a deleted ledger makes a writer without a password a writer of the log",
    ),
    Mutation(
        "password_that_was_not_read_is_empty",
        HOST,
        "            return m.PasswordRead(effect.request, outcome)\n",
        "            return m.PasswordRead(effect.request, MetadataOutcome.OK)\n",
        "an outage makes a writer without a password a writer of the log",
    ),
    Mutation(
        "record_without_a_password_has_the_empty_one",
        HOST,
        "            return m.PasswordRead(effect.request, MetadataOutcome.GONE)\n",
        "            return m.PasswordRead(effect.request, outcome)\n",
        "a record in format 1 makes the log one without a password",
    ),
    Mutation(
        "registrations_of_no_producer_are_reported",
        HOST,
        "            if ids and producer is not None:\n",
        "            if ids:\n",
        "a sweep fails when a producer is made while it reads the registrations",
    ),
    Mutation(
        "item_without_rows_is_listed",
        ROWS,
        "if last < first or rows < 1 or offset < 0:",
        "if last < first or rows < 0 or offset < 0:",
        "a damaged item without rows counts as a range of a log",
    ),
    Mutation(
        "item_without_entries_is_listed",
        ROWS,
        "if last < first or rows < 1 or offset < 0:",
        "if rows < 1 or offset < 0:",
        "a damaged item whose last entry is before its first counts as a range of a log",
    ),
    Mutation(
        "page_without_keys_is_referenced",
        ROWS,
        "or end_key <= first_key:",
        "or end_key < first_key:",
        "a damaged reference to a page that covers nothing is followed",
    ),
    Mutation(
        "page_without_records_is_referenced",
        ROWS,
        "if number < 0 or count < 1 or",
        "if number < 0 or count < 0 or",
        "a damaged reference to a page without records is followed",
    ),
]

_BOUNDS = [
    Mutation(
        "text_number_of_65_bits",
        OLDER_FORMATS,
        "if not -(1 << 63) <= value < 1 << 63:",
        "if not -(1 << 63) <= value <= 1 << 63:",
        "2**63 in a record of text becomes a negative number",
    ),
    Mutation(
        "text_number_below_64_bits",
        OLDER_FORMATS,
        "if not -(1 << 63) <= value < 1 << 63:",
        "if not -(1 << 63) - 1 <= value < 1 << 63:",
        "a number below those of 64 bits in a record of text becomes a positive one",
    ),
    Mutation(
        "text_number_of_any_size",
        OLDER_FORMATS,
        "    if not -(1 << 63) <= value < 1 << 63:\n",
        "    if False:\n",
        "a number beyond 64 bits in a record of text becomes another number",
    ),
    Mutation(
        "slices_leave_out_a_last_one_of_one",
        SLICES,
        "range(0, len(items), UNITS_PER_TURN)",
        "range(0, len(items) - 1, UNITS_PER_TURN)",
        "of 2,001 ledgers, one is neither collected nor forgotten",
    ),
    Mutation(
        "slices_overlap",
        SLICES,
        "yield items[start : start + UNITS_PER_TURN]",
        "yield items[start : start + UNITS_PER_TURN + 1]",
        "every 2,000th ledger of a file counts twice",
    ),
    Mutation(
        "entries_of_8_mib",
        OPTIONS,
        "size_bytes(4096, 4 << 20)",
        "size_bytes(4096, 8 << 20)",
        "an option takes entry sizes above the documented bound",
    ),
    Mutation(
        "entries_of_a_few_bytes",
        OPTIONS,
        "size_bytes(4096, 4 << 20)",
        "size_bytes(4095, 4 << 20)",
        "an option takes entry sizes below the documented bound",
    ),
]

_CHANNELS = [
    Mutation(
        "grpc_bookie_that_was_unknown_stays_unknown",
        f"{GRPC}/channel.py",
        "    except UNREACHABLE:\n        retire(channel)\n    except",
        "    except UNREACHABLE:\n        pass\n    except",
        "a bookie that was not registered once is unavailable as long as the client lives",
    ),
    Mutation(
        "grpc_stream_that_the_bookie_ended_keeps_its_channel",
        f"{GRPC}/bookie.py",
        "            self._bookie.retire(channel)\n            code = Code.UNAVAILABLE\n",
        "            code = Code.UNAVAILABLE\n",
        "requests go to the old address of a bookie that moved",
    ),
    Mutation(
        "grpc_stream_that_the_bookie_ended_was_successful",
        f"{GRPC}/bookie.py",
        "            self._bookie.retire(channel)\n            code = Code.UNAVAILABLE\n",
        "            self._bookie.retire(channel)\n",
        "requests that a bookie did not answer before it stopped are acknowledged",
    ),
]

_CONNECTIONS = [
    Mutation(
        "late_requests_of_a_connection_without_bound",
        f"{OVER_TCP}/link.py",
        "blocked or connection.late_count > LATE_REQUESTS_MAX",
        "blocked",
        "a bookie that never answers makes the client keep every request that timed out",
    ),
    Mutation(
        "request_that_timed_out_while_connecting_is_sent",
        f"{OVER_TCP}/link.py",
        "            if pending.is_wanted:\n                self._dispatch(pending)",
        "            self._dispatch(pending)",
        "a run that timed out before there was a connection ends the task that sends the others",
    ),
    Mutation(
        "connection_closed_unanswered_is_made_again_at_once",
        f"{OVER_TCP}/link.py",
        "        if not connection.has_answered:\n            self._lengthen_delay()\n",
        "",
        "a bookie that closes each connection gets connections without a pause",
    ),
    Mutation(
        "runs_that_were_refused_once_are_never_sent_again",
        f"{OVER_TCP}/link.py",
        "self._runs_are_refused = self._runs_are_refused and info.takes_runs",
        "self._runs_are_refused = self._runs_are_refused",
        "a bookie that was upgraded gets single adds as long as the client lives",
    ),
    Mutation(
        "closing_waits_for_bytes_that_are_not_sent",
        f"{OVER_TCP}/connection.py",
        "            self._transport.abort()",
        "            self._transport.close()",
        "a client that closes waits for a bookie that takes nothing, and leaves its socket open",
    ),
]

_STORES = [
    Mutation(
        "root_with_a_dot",
        "ledgerlog_spark/metadata/service_uri.py",
        '{".", ".."} &',
        '{".."} &',
        "ZooKeeper refuses each request of a client whose service URI was accepted",
    ),
    Mutation(
        "release_deletes_the_lease_of_the_next_holder",
        "ledgerlog_spark/metadata/held_nodes.py",
        "await self._tree.delete(path, stat.version)",
        "await self._tree.delete(path)",
        "two passes of upkeep run at the same time",
    ),
    Mutation(
        "stretch_within_another_shortens_it",
        "bookie_server/storage/spans.py",
        "ids[-1] = max(ids[-1], last)",
        "ids[-1] = last",
        "a list of entries lacks entries that the bookie holds",
    ),
    Mutation(
        "dropped_ledgers_of_a_file_are_not_counted",
        "bookie_server/storage/files/active_index.py",
        "        self._ledgers[ledger_id] = Pieces()\n        self.pieces += 1",
        "        self._ledgers[ledger_id] = Pieces()",
        "the index of a file with many dropped ledgers is larger than its bound",
    ),
    Mutation(
        "named_ledger_counts_twice_after_a_new_run",
        "bookie_server/storage/files/active_index.py",
        "        elif not len(pieces):\n            self.pieces -= 1\n",
        "",
        "a file whose ledgers are dropped again and again is finished too early",
    ),
    Mutation(
        "explicit_lac_is_not_in_the_next_state",
        "bookie_server/storage/lacs.py",
        "            self._shared.states.changed.add(state.ledger_id)\n",
        "",
        "a stored explicit LAC is lost with the file of its record",
    ),
    Mutation(
        "lac_of_the_second_of_two_entries_is_lost",
        "bookie_server/storage/replay.py",
        "    if len(record.lengths) > 1:",
        "    if len(record.lengths) > 2:",
        "after a restart the last add confirmed is lower than before",
    ),
    Mutation(
        "lac_of_any_size",
        "bookie_server/storage/lacs.py",
        "            or not 0 <= lac <= ID_MAX\n",
        "            or not 0 <= lac\n",
        "a request with an impossible id reaches the journal",
    ),
]

MUTATIONS = [*_LOGS, *_BOUNDS, *_CHANNELS, *_CONNECTIONS, *_STORES]
