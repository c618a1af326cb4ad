"""Mistakes in a bookie's data plane: lanes, receive memory, connections, and who is closed."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

SERVICE = "bookie_server/service"

MUTATIONS = [
    Mutation(
        "admin_changes_without_the_setting",
        f"{SERVICE}/admin/routes.py",
        'if wanted != "GET" and not self._view.settings.admin_changes:',
        "if False:",
        "everybody who reads the metrics may make the bookie read-only",
    ),
    Mutation(
        "admin_body_without_a_bound",
        f"{SERVICE}/admin/routes.py",
        "if size > BODY_BYTES_MAX:",
        "if False:",
        "a request with a large body is read",
    ),
    Mutation(
        "admin_change_after_its_refusal",
        f"{SERVICE}/admin/view.py",
        "            self._is_withdrawn = True\n",
        "",
        "a change that was answered with 503 is made later",
    ),
    Mutation(
        "admin_changes_while_stopping",
        f"{SERVICE}/admin/view.py",
        "        self.is_running, self.is_stopping = False, True\n",
        "        self.is_stopping = True\n",
        "a stopping bookie is ready and takes changes",
    ),
    Mutation(
        "admin_port_takes_any_number_of_connections",
        f"{SERVICE}/admin/server.py",
        "if len(self._until) >= CONNECTIONS_MAX:",
        "if False:",
        "peers of the metrics port take all threads",
    ),
    Mutation(
        "admin_body_beyond_the_bound_of_a_request",
        f"{SERVICE}/admin/server.py",
        "data: bytes = self._file.read(min(size_bytes, self._left_bytes))",
        "data: bytes = self._file.read(size_bytes)",
        "a body is read beyond the bound of a request",
    ),
    Mutation(
        "quantiles_of_all_times",
        f"{SERVICE}/metrics/durations.py",
        "        self._previous = self._current if is_next else list(empty)\n",
        "        self._previous = self._current\n",
        "times of an hour ago are among those of the last minutes",
    ),
    Mutation(
        "answer_of_an_add_keeps_its_place_in_writes",
        f"{SERVICE}/v2/connection.py",
        "            share.give_back(taken_bytes)\n            share = self.shares.adds\n",
        "            share = self.shares.adds\n",
        "the lane of writes fills and no add is taken any more",
    ),
    Mutation(
        "answer_gives_back_its_own_bytes",
        f"{SERVICE}/v2/connection.py",
        "            share.give_back(taken_bytes - size_bytes)\n",
        "            share.give_back(taken_bytes)\n",
        "an answer that is not taken yet is not counted",
    ),
    Mutation(
        "lost_connection_keeps_its_grant",
        f"{SERVICE}/v2/connection.py",
        "            self._granted = None\n            share.give_back(granted_bytes)\n"
        "        self.memory",
        "            self._granted = None\n        self.memory",
        "bytes that were granted to a peer that left count for ever",
    ),
    Mutation(
        "lost_connection_stays_in_line",
        f"{SERVICE}/v2/connection.py",
        "        self._answers.clear()\n        self.shares.stop_waiting()\n",
        "        self._answers.clear()\n",
        "a peer that left waits in line, and gets bytes that it never gives back",
    ),
    Mutation(
        "dropped_backlog_keeps_its_memory",
        f"{SERVICE}/v2/connection.py",
        "        while self._backlog:\n            self._free_first()\n",
        "        while self._backlog:\n            self._backlog.popleft()\n",
        "frames of a peer that left count for ever",
    ),
    Mutation(
        "resumed_frame_keeps_its_memory",
        f"{SERVICE}/v2/connection.py",
        "            self._free_first()\n        self._backlog.extendleft",
        "            self._backlog.popleft()\n        self._backlog.extendleft",
        "memory of frames that waited is never used again",
    ),
    Mutation(
        "grant_of_another_lane_is_lost",
        f"{SERVICE}/v2/connection.py",
        "                return granted_bytes\n            granted.give_back(granted_bytes)\n",
        "                return granted_bytes\n",
        "bytes that were granted for what is not asked any more count for ever",
        equivalent="a connection waits for one thing at a time: the first of its backlog, which "
        "asks the same lane each time, or with an empty backlog for memory; reading is paused "
        "meanwhile, so what was granted is what is asked for next",
    ),
    Mutation(
        "idle_with_open_requests",
        f"{SERVICE}/v2/connection.py",
        "is_unanswered = self.open_requests or self._backlog",
        "is_unanswered = bool(self._backlog)",
        "a connection is closed for another one while its requests are out",
    ),
    Mutation(
        "sent_answers_wake_nobody",
        f"{SERVICE}/v2/connection.py",
        "                share.give_back(sent_bytes)\n        if self._is_paused:\n"
        "            self._schedule_resume()\n",
        "                share.give_back(sent_bytes)\n",
        "a peer whose answers were not taken is never heard again",
    ),
    Mutation(
        "request_without_an_answer_stays_open",
        f"{SERVICE}/v2/connection.py",
        "        self.open_requests -= 1\n        share.give_back(taken_bytes)\n\n",
        "        share.give_back(taken_bytes)\n\n",
        "a stop waits for a request that is over",
    ),
    Mutation(
        "share_waits_for_itself",
        f"{SERVICE}/v2/connection.py",
        "return not has_more and share.held_bytes > share.reserve_bytes",
        "return False",
        "a request waits for the memory that it lies in",
    ),
    Mutation(
        "memory_of_waiting_frames_is_used_again",
        f"{SERVICE}/v2/receive_memory.py",
        "            buffer_of(body).unanswered += 1\n",
        "            buffer_of(body).unanswered += 0\n",
        "a frame that waits is overwritten by the next one",
    ),
    Mutation(
        "memory_of_an_add_is_used_again",
        f"{SERVICE}/v2/operations.py",
        "        buffer.unanswered += 1\n        stored = ",
        "        buffer.unanswered += 0\n        stored = ",
        "an add that storage writes is overwritten by the next frame",
    ),
    Mutation(
        "memory_in_use_is_counted_out",
        f"{SERVICE}/v2/receive_memory.py",
        "is_counted_out = old.charge is share and not old.unanswered",
        "is_counted_out = old.charge is share",
        "memory of adds that are not answered is given to others",
    ),
    Mutation(
        "memory_of_open_requests_goes_with_the_connection",
        f"{SERVICE}/v2/receive_memory.py",
        "        buffer = self.frames.close()\n        if not buffer.unanswered:\n"
        "            _uncharge(buffer)\n",
        "        buffer = self.frames.close()\n        _uncharge(buffer)\n",
        "a peer that leaves frees memory that storage still reads",
    ),
    Mutation(
        "stalled_peers_stay",
        f"{SERVICE}/v2/sweeper.py",
        "reason = connection.watch.overdue(now, self._stall_seconds)",
        "reason = None",
        "who takes none of its answers is never closed",
    ),
    Mutation(
        "silent_peers_stay",
        f"{SERVICE}/v2/sweeper.py",
        "if reason is None and self._is_silent(connection, now):",
        "if False:",
        "who asks for nothing keeps a place for ever",
    ),
    Mutation(
        "relief_closes_whoever_holds_most",
        f"{SERVICE}/v2/sweeper.py",
        "        holders = [connection for connection in holders"
        " if self._is_in_the_way(connection, now)]\n",
        "",
        "a peer that moves is closed because it holds much",
    ),
    Mutation(
        "nobody_is_relieved",
        f"{SERVICE}/v2/sweeper.py",
        "        if lane.waiting_count:\n            self.relieve(lane)\n",
        "        pass\n",
        "reads wait as long as somebody takes no answers",
    ),
    Mutation(
        "peer_that_moved_once_never_stalls",
        f"{SERVICE}/v2/peer_watch.py",
        "return min(self.took_at, self.sent_at) + grace_seconds <= now",
        "return max(self.took_at, self.sent_at) + grace_seconds <= now",
        "who takes no answers but sends is in nobody's way",
    ),
    Mutation(
        "peer_that_takes_nothing_moves",
        f"{SERVICE}/v2/peer_watch.py",
        "taken_bytes >= before + MOVED_BYTES_MIN",
        "taken_bytes >= before",
        "who takes none of its answers is never overdue",
    ),
    Mutation(
        "bytes_that_come_back_wake_nobody",
        f"{SERVICE}/limits/budget.py",
        "            budget.count(self, -size_bytes)\n        if budget.waiting:\n"
        "            budget.grant_waiting()\n",
        "            budget.count(self, -size_bytes)\n",
        "who waits in line waits for ever",
    ),
    Mutation(
        "virtual_time_stands_still",
        f"{SERVICE}/limits/budget.py",
        "                    self.virtual_time += share.cost_of(size_bytes) // len(self.waiting)\n",
        "",
        "newcomers are served before those that waited longer",
    ),
    Mutation(
        "hosts_that_left_are_kept",
        f"{SERVICE}/limits/budget.py",
        "                del self._hosts[share.host]\n",
        "                self._hosts[share.host] = 0\n",
        "each address that ever connected takes memory, and counts as one that shares",
    ),
    Mutation(
        "bytes_of_others_wake_nobody",
        f"{SERVICE}/limits/budget.py",
        "        budget.count(self, size_bytes)\n        if budget.waiting:\n",
        "        budget.count(self, size_bytes)\n        if False:\n",
        "who stood behind a host that has too much by now waits although there is room",
    ),
    Mutation(
        "who_leaves_the_line_wakes_nobody",
        f"{SERVICE}/limits/budget.py",
        "            self.leave_line()\n            self.budget.grant_waiting()\n",
        "            self.leave_line()\n",
        "those behind a peer that left the line wait although there is room",
    ),
    Mutation(
        "reserve_counts_twice",
        f"{SERVICE}/limits/budget.py",
        "        before = max(0, share.held_bytes - share.reserve_bytes)\n"
        "        share.held_bytes += size_bytes\n",
        "        before = max(0, share.held_bytes)\n        share.held_bytes += size_bytes\n",
        "what is shared is counted as less than it is",
    ),
    Mutation(
        "busy_connections_are_replaced",
        f"{SERVICE}/v2/server.py",
        "if connection.is_idle and (is_known_host or not connection.is_proven)",
        "if is_known_host or not connection.is_proven",
        "a newcomer takes the place of a peer whose requests are out",
    ),
    Mutation(
        "connection_that_left_keeps_its_place",
        f"{SERVICE}/v2/server.py",
        "        self._connections.discard(connection)\n\n    async",
        "\n    async",
        "the bookie is full of connections that are gone",
    ),
    Mutation(
        "turns_end_with_the_first",
        f"{SERVICE}/v2/shared.py",
        "            self._is_turning = bool(self.turns)\n            if self.turns:\n",
        "            self._is_turning = bool(self.turns)\n            if False:\n",
        "connections behind the first turn wait for ever",
    ),
    Mutation(
        "large_answer_is_sent_uncounted",
        f"{SERVICE}/v2/connection.py",
        "        if not share.extend(more_bytes):\n            self._shared",
        "        if False:\n            self._shared",
        "answers larger than expected pass the bound of their lane",
    ),
    Mutation(
        "refused_answer_is_held_nevertheless",
        f"{SERVICE}/v2/operations.py",
        "        self._read_reserve.learn(size_bytes)\n",
        "",
        "a read of a large entry is refused again and again",
    ),
    Mutation(
        "batch_that_is_given_up_makes_room_at_once",
        f"{SERVICE}/grpc/replies.py",
        """        except asyncio.CancelledError:
            if not answered.cancelled():
                share.give_back(size_bytes)
            raise
""",
        """        except asyncio.CancelledError:
            share.give_back(size_bytes)
            size_bytes = 0
            raise
""",
        "a client that cancels its reads has any number of them made at the same time",
    ),
    Mutation(
        "log_shows_what_variables_held",
        f"{SERVICE}/logging.py",
        "ExceptionDictTransformer(show_locals=False)",
        "ExceptionDictTransformer()",
        "keys, passwords and payloads are in the log of a crash",
    ),
    Mutation(
        "stop_leaves_what_is_still_sent",
        f"{SERVICE}/v2/connection.py",
        """            self._is_paused = False
            self._transport.resume_reading()

    def close""",
        "            self._is_paused = False\n\n    def close",
        "answers of accepted requests are lost with a socket that is closed unread",
    ),
    Mutation(
        "stream_that_is_gone_keeps_its_bytes",
        f"{SERVICE}/grpc/stream.py",
        "        if self._is_dropped:\n            give_back(taken)\n",
        "        if self._is_dropped:\n",
        "each request of a stream that broke takes a part of its lane for ever",
    ),
    Mutation(
        "half_append_counts_what_came",
        f"{SERVICE}/grpc/stream.py",
        "len(request.body) + request.more_size_bytes",
        "len(request.body)",
        "150 half appends of 5 MB over gRPC make a bookie 1 GB large",
    ),
    Mutation(
        "half_append_is_never_in_the_way",
        f"{SERVICE}/grpc/stream.py",
        "return _is_before(self._parts_since, seconds)",
        "return False",
        "appends over gRPC that are begun and not finished hold up the others' for 10 s each",
    ),
    Mutation(
        "stuck_call_is_ended_without_its_connection",
        f"{SERVICE}/grpc/stuck_calls.py",
        "                await asyncio.to_thread(self.close_connections, peers)",
        "                pass",
        "the library keeps every reply that a client does not take, until the client goes",
    ),
    Mutation(
        "evicted_call_leaves_its_reply_behind",
        f"{SERVICE}/grpc/calls.py",
        "        if self.is_sending:\n",
        "        if not self.peer:\n",
        "one connection that gets its reads ended by others leaves 256 replies of any size behind",
    ),
    Mutation(
        "call_leaves_its_place_before_its_reply",
        f"{SERVICE}/grpc/calls.py",
        "        if kind is not None or not self._is_kept:\n            self._leave()\n",
        "        self._leave()\n",
        "65,536 small replies that nobody takes make a bookie 800 MB large",
    ),
    Mutation(
        "wait_for_a_turn_counts_against_the_client",
        f"{SERVICE}/grpc/stream.py",
        "                    self._writing = taken\n",
        "                    self._writing = taken\n                    self.offer()\n",
        "clients are closed for replies that they were not offered yet",
    ),
    Mutation(
        "connections_that_cannot_be_closed_keep_their_calls",
        f"{SERVICE}/grpc/stuck_calls.py",
        "except Exception as error:",
        "except ValueError as error:",
        "calls that come while connections are closed are ended by nobody after one failure",
    ),
    Mutation(
        "other_connections_of_a_peers_address_are_closed",
        f"{SERVICE}/grpc/stuck_calls.py",
        "        and connection.laddr.port == local_port\n",
        "",
        "the data connection of a client is closed that has the same port there",
    ),
    Mutation(
        "large_replies_are_made_in_one_turn",
        f"{SERVICE}/grpc/stream.py",
        "                await asyncio.sleep(0)",
        "                pass",
        "sixteen replies of 3 MB hold the loop up for 90 ms",
    ),
    Mutation(
        "batch_ended_before_its_turn_keeps_its_bytes",
        f"{SERVICE}/grpc/stream.py",
        "            await self.wait(taken[1])\n        except BaseException:",
        "            await self.wait(taken[1])\n        except TimeoutError:",
        "the lane of reads is full for ever after some cancelled batches",
    ),
    Mutation(
        "call_that_is_ended_stays_open",
        f"{SERVICE}/grpc/calls.py",
        "        if kind is asyncio.CancelledError and not self._call.context.done():",
        "        if kind is asyncio.TimeoutError and not self._call.context.done():",
        "a call that gave its place to another one goes on to receive a request",
    ),
    Mutation(
        "streams_receive_without_a_place",
        f"{SERVICE}/grpc/calls.py",
        "call.place(self._slots), call.place(self._receiving)",
        "call.place(self._slots)",
        "2,560 calls receive a request each at once instead of 512",
    ),
    Mutation(
        "state_is_announced_once",
        f"{SERVICE}/membership/registration.py",
        "                self._changed.set()\n                await asyncio.sleep",
        "                await asyncio.sleep",
        "a bookie that became read-only while the store was away stays announced as writable",
    ),
    Mutation(
        "sweeper_ends_with_an_error",
        f"{SERVICE}/v2/sweeper.py",
        "            except Exception as error:",
        "            except TypeError as error:",
        "after one connection that cannot be looked at nobody who stalls is closed any more",
    ),
]
