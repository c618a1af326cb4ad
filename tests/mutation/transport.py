"""Mistakes in the transport: deadlines, lanes, connections, pauses, the control service."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

TRANSPORT = "ledgerlog_spark/transport"

_REQUESTS = [
    Mutation(
        "run_answered_by_last_entry",
        f"{TRANSPORT}/pending.py",
        "self._code = worst(self._code, code)",
        "self._code = code",
        "a run counts as stored though an entry was refused",
    ),
    Mutation(
        "run_answered_by_first_entry",
        f"{TRANSPORT}/pending.py",
        "        if self._unanswered == 0:\n",
        "        if self.is_open:\n",
        "a run counts as stored when its first entry is",
    ),
    Mutation(
        "refusal_outweighs_fence",
        f"{TRANSPORT}/pending.py",
        "return one if _WEIGHTS[one] >= _WEIGHTS[other] else other",
        "return one if _WEIGHTS[one] <= _WEIGHTS[other] else other",
        "a run of which one entry was refused counts as stored",
    ),
    Mutation(
        "shorter_deadline_waits_for_longer_one",
        f"{TRANSPORT}/deadlines.py",
        "        elif due < self._due:\n",
        "        elif False:\n",
        "a read waits for the deadline of an add",
    ),
    Mutation(
        "deadlines_end_with_the_first",
        f"{TRANSPORT}/deadlines.py",
        "        if next_due is not None:\n            self._start_timer(next_due)\n",
        "",
        "requests after an expired request never expire",
    ),
    Mutation(
        "deadline_of_last_queue_counts",
        f"{TRANSPORT}/deadlines.py",
        "next_due = due if next_due is None else min(next_due, due)",
        "next_due = due",
        "a deadline is late when requests with another one are out",
    ),
    Mutation(
        "deadlines_keep_what_was_answered",
        f"{TRANSPORT}/deadlines.py",
        "            while queue and not queue[0].is_open:\n                queue.popleft()\n",
        "            pass\n",
        "a connection keeps answered requests until their deadlines",
    ),
]

_CONNECTION = [
    Mutation(
        "followers_behind_the_second_are_lost",
        f"{TRANSPORT}/v2/connection.py",
        "            first.followers = rest\n",
        "",
        "the third request for one entry is never sent",
    ),
    Mutation(
        "late_answer_blocks_its_entry",
        f"{TRANSPORT}/v2/connection.py",
        "            return self._is_late(pending.key)\n        if",
        "            return False\n        if",
        "after one lost answer an entry cannot be read from that bookie any more",
    ),
    Mutation(
        "late_answer_passes_for_a_new_run",
        f"{TRANSPORT}/v2/connection.py",
        """            return any(
                self._is_late((Opcode.ADD, ledger_id, entry_id)) for entry_id in request.entry_ids
            )""",
        """            return self._is_late((Opcode.ADD, ledger_id, request.entry_ids[0]))""",
        "an entry waits for an answer that never comes",
    ),
    Mutation(
        "blocked_requests_stay_behind",
        f"{TRANSPORT}/v2/connection.py",
        "                blocked += ["
        "follower for follower in held.followers if follower.is_wanted]\n"
        "                held.followers = []\n",
        """                pass
""",
        "requests that wait for a timed-out request time out too",
    ),
    Mutation(
        "followers_are_not_told_of_a_lost_connection",
        f"{TRANSPORT}/v2/connection.py",
        "            unanswered += held.followers\n",
        "",
        "requests that waited for another request are never answered",
    ),
    Mutation(
        "unsent_requests_unbounded",
        f"{TRANSPORT}/v2/connection.py",
        "return self._is_writing_paused and self._unsent_bytes >= UNSENT_BYTES_MAX",
        "return False",
        "memory grows while a bookie takes nothing",
    ),
    Mutation(
        "paused_connection_never_resumes",
        f"{TRANSPORT}/v2/connection.py",
        "        self._is_writing_paused = False\n        self._flush()\n",
        "        self._is_writing_paused = False\n",
        "bytes that were kept while the bookie accepted nothing wait for the next request",
    ),
    Mutation(
        "given_up_connection_answers",
        f"{TRANSPORT}/v2/connection.py",
        "                if self._is_given_up:\n                    return\n",
        "",
        "an answer on a connection that was given up meets no request",
    ),
    Mutation(
        "lac_overtakes_its_entry",
        f"{TRANSPORT}/v2/connection.py",
        "        if not self.takes_lacs or self._is_writing_paused:\n",
        "        if not self.takes_lacs:\n",
        "a LAC that still waits is reported as sent",
    ),
    Mutation(
        "lost_is_waited_for_without_end",
        f"{TRANSPORT}/v2/connection.py",
        "await within(asyncio.shield(self._lost), LOST_SECONDS_MAX)",
        "await asyncio.shield(self._lost)",
        "closing a transport waits for a socket that never goes",
    ),
]

_LINK = [
    Mutation(
        "cut_off_runs_lost",
        f"{TRANSPORT}/v2/link.py",
        "_fail_all([*runs, *waiting])",
        "_fail_all([*waiting])",
        "a run is never answered",
    ),
    Mutation(
        "reconnects_without_a_pause",
        f"{TRANSPORT}/v2/link.py",
        "        self._next_attempt_at = self._loop.time() + pause_ms / 1e3\n",
        "",
        "each request to a bookie that is down is an attempt to connect",
    ),
    Mutation(
        "back_off_is_never_over",
        f"{TRANSPORT}/v2/link.py",
        "        self._failures = 0\n        self._deadlines.trim()\n",
        "        self._deadlines.trim()\n",
        "a bookie that was down once is kept away from for the longest time after each failure",
    ),
    Mutation(
        "connection_before_the_retired_stays",
        f"{TRANSPORT}/v2/link.py",
        "        if before is not None:\n            _drop(before)\n        self._close_retired()",
        "        self._close_retired()",
        "each lost answer leaves a connection open",
    ),
    Mutation(
        "retired_connection_stays_open",
        f"{TRANSPORT}/v2/link.py",
        "        self._deadlines.trim()\n        self._close_retired()\n",
        "        self._deadlines.trim()\n",
        "a connection that takes no more requests is closed at the next time-out alone",
    ),
    Mutation(
        "retired_connection_is_cut_off",
        f"{TRANSPORT}/v2/link.py",
        "if retired is not None and not retired.is_wanted:",
        "if retired is not None:",
        "one slow request fails those of others",
    ),
    Mutation(
        "closed_link_leaves_what_waits",
        f"{TRANSPORT}/v2/link.py",
        "            await connection.lost()\n        self._fail_waiting()\n",
        "            await connection.lost()\n",
        "requests that wait for a connection are never answered when the transport is closed",
    ),
    Mutation(
        "lost_connection_answers_at_the_deadline",
        f"{TRANSPORT}/v2/link.py",
        "            self._lengthen_delay()\n        _fail_all(unanswered)\n",
        "            self._lengthen_delay()\n",
        "a bookie that died is noticed by time-outs alone",
    ),
    Mutation(
        "connects_without_a_deadline",
        f"{TRANSPORT}/v2/link.py",
        "async with asyncio.timeout(self._connect_timeout_ms / 1e3):",
        "async with asyncio.timeout(None):",
        "a bookie whose machine is lost is not looked up again for minutes",
    ),
    Mutation(
        "refused_connection_fails_nobody",
        f"{TRANSPORT}/v2/link.py",
        "                self._lengthen_delay()\n                self._fail_waiting()\n",
        "                self._lengthen_delay()\n",
        "requests to a bookie that is down wait for their deadlines",
    ),
    Mutation(
        "runs_go_again_to_a_bookie_without_them",
        f"{TRANSPORT}/v2/link.py",
        "        self._runs_are_refused = True\n        if self._connection is not None:\n"
        "            self._connection.takes_runs = False\n",
        "",
        "a bookie that does not support ADD_RUN gets the same run repeatedly",
    ),
    Mutation(
        "fencing_reads_wait_behind_reads",
        f"{TRANSPORT}/v2/transport.py",
        "        lane = V2Lane.CONTROL if is_control else V2Lane.READS\n",
        "        lane = V2Lane.READS\n",
        "a plain read of the last entry passes for a fencing one",
    ),
    Mutation(
        "recovery_waits_behind_adds",
        f"{TRANSPORT}/v2/transport.py",
        "lane = V2Lane.CONTROL if request.is_recovery else V2Lane.ADDS",
        "lane = V2Lane.ADDS",
        "recovery waits for the megabytes of writers",
    ),
    Mutation(
        "reads_wait_behind_adds",
        f"{TRANSPORT}/v2/transport.py",
        '    READS = "reads"\n',
        '    READS = "adds"\n',
        "a slow read disturbs adds",
    ),
]

_CONTROL = [
    Mutation(
        "grpc_never_looks_up_again",
        f"{TRANSPORT}/grpc/channel.py",
        "        if error.code() not in _ANSWERED:\n            retire(channel)\n",
        "",
        "requests go to the old address of a bookie that moved",
    ),
    Mutation(
        "grpc_stream_that_broke_is_used",
        f"{TRANSPORT}/grpc/bookie.py",
        "if found is None or found.is_broken:",
        "if found is None:",
        "requests after a broken stream are never sent",
    ),
    Mutation(
        "grpc_stream_that_broke_answers_nobody",
        f"{TRANSPORT}/grpc/bookie.py",
        "        for request in requests.values():\n            request.fail(code)\n",
        "",
        "requests on a stream that broke wait for their deadlines",
    ),
    Mutation(
        "grpc_closed_calls_are_not_answered",
        f"{TRANSPORT}/grpc/bookie.py",
        "            task.cancel()\n            request.fail(Code.UNAVAILABLE)\n",
        "            task.cancel()\n",
        "calls of a transport that is closed are never answered",
    ),
    Mutation(
        "grpc_sends_what_timed_out",
        f"{TRANSPORT}/grpc/bookie.py",
        "                if request.is_open:\n                    for message in",
        "                if request.message is not None:\n                    for message in",
        "requests that timed out before they were sent are sent",
        equivalent="an answered request has no message either",
    ),
    Mutation(
        "grpc_watch_that_hangs_is_waited_for",
        f"{TRANSPORT}/grpc/bookie.py",
        "async with asyncio.timeout(BEGIN_SECONDS_MAX):",
        "async with asyncio.timeout(None):",
        "a follower is not notified, because its first bookie hangs",
    ),
    Mutation(
        "grpc_watch_tells_again",
        f"{TRANSPORT}/grpc/bookie.py",
        "if reply.last_add_confirmed > last and not self._is_over:",
        "if reply.last_add_confirmed >= last and not self._is_over:",
        "a watch repeats its last report",
    ),
    Mutation(
        "grpc_watch_ends_in_silence",
        f"{TRANSPORT}/grpc/bookie.py",
        "            self._is_over = True\n            self._on_end(code)\n\n    async def _watch",
        "            self._is_over = True\n\n    async def _watch",
        "a follower is not notified that its watch broke",
    ),
    Mutation(
        "grpc_requests_stay_in_line_when_they_are_over",
        f"{TRANSPORT}/grpc/bookie.py",
        "self._unsent = deque(each for each in self._unsent if each[1].is_open)",
        "pass",
        "a stream whose bookie accepted nothing for a while is BUSY forever",
    ),
    Mutation(
        "grpc_channels_stay",
        f"{TRANSPORT}/grpc/transport.py",
        "            if len(self._bookies) >= BOOKIES_MAX:\n",
        "            if False:\n",
        "a client keeps a channel to each bookie that a record ever named",
    ),
    Mutation(
        "grpc_refusal_breaks_the_channel",
        f"{TRANSPORT}/grpc/channel.py",
        "        if error.code() not in _ANSWERED:\n",
        "        if True:\n",
        "one call that a busy bookie refuses ends all watches and streams of the client",
    ),
    Mutation(
        "grpc_watch_dies_with_its_channel",
        f"{TRANSPORT}/grpc/channel.py",
        "        if task is not None and task.cancelling():\n            raise\n",
        "        raise\n",
        "a watch whose channel was closed after another call's failure never reports anything",
    ),
    Mutation(
        "grpc_stream_dies_with_its_channel",
        f"{TRANSPORT}/grpc/bookie.py",
        "        self._break(code)\n\n    async def _exchange",
        "        if code is not Code.UNAVAILABLE:\n            self._break(code)\n\n"
        "    async def _exchange",
        "a stream whose channel was closed after another call's failure accepts requests forever",
    ),
]

_BOUNDS = [
    Mutation(
        "requests_are_unbounded",
        f"{TRANSPORT}/v2/link.py",
        "        if self._deadlines.is_full:\n",
        "        if False:\n",
        "requests pile up for as long as a bookie does not answer",
    ),
    Mutation(
        "links_stay",
        f"{TRANSPORT}/v2/transport.py",
        "            if len(self._links) >= LINKS_MAX:\n",
        "            if False:\n",
        "a client keeps connections to each bookie that a record ever named",
    ),
    Mutation(
        "links_in_use_are_closed",
        f"{TRANSPORT}/v2/transport.py",
        "idle = [key for key, link in self._links.items() if link.is_idle]",
        "idle = list(self._links)",
        "requests fail because a request goes to another bookie",
    ),
]

_WIRE = "ledgerlog_spark/wire"

_BYTES = [
    Mutation(
        "frame_waits_for_the_next_one",
        f"{_WIRE}/frames.py",
        "            if end - body_start < length:\n",
        "            if end - body_start <= length:\n",
        "the last answer that came is looked at when another one comes",
    ),
    Mutation(
        "half_frame_moves_from_the_wrong_place",
        f"{_WIRE}/frames.py",
        "memoryview(self._chunk.buffer)[self._start : self._end]\n",
        "memoryview(self._chunk.buffer)[:held]\n",
        "a frame that lies across two chunks begins with bytes of another one",
    ),
    Mutation(
        "oversize_frames_are_waited_for",
        f"{_WIRE}/frames.py",
        "            if not _BODY_SIZE_BYTES_MIN <= length <= length_max:\n",
        "            if not _BODY_SIZE_BYTES_MIN <= length:\n",
        "a peer that sends nonsense makes a connection hang, and memory grow",
    ),
    Mutation(
        "answers_of_any_version_are_taken",
        f"{_WIRE}/answers.py",
        "    if not VERSION_MIN <= version <= VERSION:\n",
        "    if version < VERSION_MIN:\n",
        "an answer of a version that has other fields is read as one of ours",
    ),
    Mutation(
        "retired_connection_that_is_lost_answers_nobody",
        f"{TRANSPORT}/v2/link.py",
        "            self._retired = None\n            _fail_all(connection.take_unanswered())\n",
        "            self._retired = None\n",
        "requests on a connection that was replaced and lost wait for their deadlines",
    ),
    Mutation(
        "batches_share_a_number",
        f"{TRANSPORT}/v2/transport.py",
        "        pending = PendingBatch(request, next(self._request_ids), on_reply)\n",
        "        pending = PendingBatch(request, 0, on_reply)\n",
        "of two batches one gets the other's entries",
    ),
    Mutation(
        "run_passes_for_the_last_one",
        f"{TRANSPORT}/v2/transport.py",
        "if prepared is None or prepared.request is not request:",
        "if prepared is None or prepared.request.entry_ids != request.entry_ids:",
        "the entries of another ledger are sent",
    ),
    Mutation(
        "recovery_adds_one_by_one_are_plain",
        f"{TRANSPORT}/prepared_run.py",
        "        flags = _RECOVERY if request.is_recovery else 0\n",
        "        flags = 0\n",
        "a fenced bookie without ADD_RUN refuses the entries that recovery writes back",
    ),
    Mutation(
        "half_connection_stays",
        f"{TRANSPORT}/v2/connection.py",
        "        return False\n\n    def pause_writing",
        "        return True\n\n    def pause_writing",
        "requests go to a bookie that sends no more",
    ),
    Mutation(
        "connection_that_was_lost_meanwhile_is_used",
        f"{TRANSPORT}/v2/link.py",
        "        if not connection.is_lost:\n            self._connection = connection\n",
        "        self._connection = connection\n",
        "requests are sent on a connection that the bookie accepted and immediately reset",
    ),
    Mutation(
        "refused_lacs_are_told_again",
        f"{TRANSPORT}/v2/connection.py",
        "        self.takes_lacs = False\n",
        "        pass\n",
        "a bookie that refuses LACs gets each LAC, and the LACs are reported as sent",
    ),
    Mutation(
        "lac_goes_before_the_adds_of_its_turn",
        f"{TRANSPORT}/v2/connection.py",
        "        self._unsent.append(frame)\n",
        "        self._unsent.insert(0, frame)\n",
        "followers hear of an entry that the bookie does not have yet",
    ),
    Mutation(
        "attempt_cut_off_early_leaves_what_waits",
        f"{TRANSPORT}/v2/link.py",
        "            self._connecting = None  # a task that never began has not reset this\n",
        "",
        "requests are never answered when a transport is closed as it begins to connect",
    ),
    Mutation(
        "behind_a_late_answer_nobody_waits",
        f"{TRANSPORT}/v2/connection.py",
        "            for pending in (held, *held.followers)\n",
        "            for pending in (held,)\n",
        "a repeated request after a time-out fails other requests for the same entry",
    ),
    Mutation(
        "answer_of_another_kind_takes_the_request",
        f"{TRANSPORT}/v2/connection.py",
        "        batch = self._by_id.get(answer.request_id)\n",
        "        batch = self._by_id.pop(answer.request_id, None)\n"
        "        self._by_id[answer.request_id] = None  # type: ignore[assignment]\n"
        "        if not isinstance(batch, PendingBatch):\n"
        "            del self._by_id[answer.request_id]\n",
        "a request that a wrong answer names waits for its deadline",
    ),
    Mutation(
        "closed_transport_connects",
        f"{TRANSPORT}/v2/transport.py",
        "            if self._is_closed:\n                link.drop()\n",
        "",
        "a closed transport opens connections that are never closed",
    ),
]

MUTATIONS = [*_REQUESTS, *_CONNECTION, *_LINK, *_CONTROL, *_BOUNDS, *_BYTES]
