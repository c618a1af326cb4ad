"""The invariants of requests and connections, checked whenever a request or a connection
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import Code
from ledgerlog_spark.transport.v2.transport import RECONNECT
from ledgerlog_spark.wire.opcodes import Flag
from ledgerlog_spark.wire.requests import (
    AddRequest,
    AddRunRequest,
    BatchReadRequest,
    ReadRequest,
    Request,
    TellLacRequest,
)
from ledgerlog_spark.wire.slice_requests import SliceReadRequest
from tests.sim.transport.bookie import CONNECT_SECONDS, HEALS_SECONDS, RECONNECT_MS_MAX
from tests.sim.transport.wire import Answer, Frame, Line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.transport.v2.link import V2Link
    from tests.sim.transport.bookie import Bookie
    from tests.sim.transport.world import TransportWorld

REQUESTS_MAX = 48
UNSENT_BYTES_MAX = 12_000
LINKS_MAX = 7
LATE_REQUESTS_MAX = 12
PROMPT_SECONDS = 0.12
"""Time limit of the answer to a request without faults."""

LOOSE_SECONDS = CONNECT_SECONDS + 0.02
"""Maximum time for which a request may be neither sent, nor behind another request, nor about to be
sent.
"""

TOLD_SECONDS = 0.002
NUMBERED = ("batch", "slices")
"""Requests whose answers have the id of the request."""

_LOCAL = (Code.TIMEOUT, Code.UNAVAILABLE, Code.BUSY)
_SERIOUS = (
    (Code.OK,),
    (Code.READ_ONLY, Code.BAD_REQUEST, Code.BAD_VERSION, Code.NO_ENTRY, Code.NO_LEDGER, Code.BUSY),
    (Code.IO_ERROR, Code.DIGEST_MISMATCH, Code.UNAVAILABLE, Code.TIMEOUT),
    (Code.FENCED, Code.UNAUTHORIZED),
)
"""Codes in ascending order of severity. The code of a run is the most severe of its entries."""


def seriousness(code: Code) -> int:
    return next(rank for rank, codes in enumerate(_SERIOUS) if code in codes)


class Asked:
    """One request of a user.

    Attributes:
        keys: The keys of its answers, if the answers have no request id.
        answers: The received answers, with the key of each.
        is_excused: Whether its own answer is late or lost.
        before: Open requests for the same entries at the time when it was made.
    """

    def __init__(
        self, serial: int, what: str, lane: Lane, request: Any, keys: Sequence[Any], timeout_ms: int
    ) -> None:
        self.serial = serial
        self.what = what
        self.lane = lane
        self.request = request
        self.keys = frozenset(keys)
        self.timeout_s = timeout_ms / 1e3
        self.begun = lane.world.loop.time()
        self.is_open = True
        self.ended_at = 0.0
        self.is_new = True
        self.is_excused = False
        self.before: list[Asked] = []
        self.frames: list[Frame] = []
        self.answers: list[tuple[Any, Code]] = []
        self.answered_as_run: Code | None = None
        self.loose_since: float | None = None

    def __repr__(self) -> str:
        return f"{self.what} {self.serial} of {self.lane.bookie.name} ({self.lane.name})"


class Lane:
    """One link of the transport, as it should behave.

    Attributes:
        lost_at: Time at which a connection was last lost, or a connect or look-up last failed.
        cut_at: The same for losses after which a run is sent again and other requests fail.
        held_at: Time of the end of a connection on which requests waited to be taken.
        failures: Minimum and maximum number of failures after the last received bytes.
        next_at: Time before which no attempt is made, and time by which an attempt is made.
        calm_at: Time from which on its requests are quick again, except for faults of the bookie.
    """

    def __init__(self, world: TransportWorld, bookie: Bookie, name: str, link: V2Link) -> None:
        self.world = world
        self.bookie = bookie
        self.name = name
        self.link = link
        self.lost_at = -9.0
        self.cut_at = -9.0
        self.held_at = -9.0
        self.failures = [0, 0]
        self.next_at = [-9.0, -9.0]
        self.calm_at = 0.0
        self.open: dict[Asked, None] = {}
        self.recent: list[float] = []
        self.lines: list[Line] = []
        self.attempt_at = -9.0
        self.ended: dict[Any, float] = {}
        """Time at which the last request with each key ended."""

    @property
    def open_lines(self) -> list[Line]:
        self.lines = [line for line in self.lines if not line.is_over]
        return self.lines

    def disturb(self, until: float) -> None:
        """Record that requests of this lane may be slow or fail until some time after `until`."""
        self.calm_at = max(self.calm_at, until + HEALS_SECONDS)

    def is_disturbed(self, since: float) -> bool:
        return max(self.calm_at, self.bookie.calm_at) > since

    def failed(self) -> None:
        now = self.world.loop.time()
        self.lost_at = now
        for place in (0, 1):
            self.failures[place] += 1
            delay_ms = min(RECONNECT.first_delay_ms << (self.failures[place] - 1), RECONNECT_MS_MAX)
            self.next_at[place] = now + delay_ms / 1e3

    def attempt(self) -> None:
        """Check an attempt to connect: a link pauses after each failure, each time longer."""
        now = self.world.loop.time()
        self.attempt_at = now
        is_for_cut_off = now == self.lost_at
        early_ms = (self.next_at[0] - now) * 1e3
        self.world.require(
            early_ms < 0.01 or is_for_cut_off,
            f"{self.bookie.name} ({self.name}) is tried {early_ms:.1f} ms too early",
        )

    def came_in(self, *, is_sure: bool) -> None:
        self.failures = [0, 0] if is_sure else [0, self.failures[1]]


def lane_of(request: Request) -> str:
    """Return the lane of a request, from its bytes."""
    match request:
        case AddRunRequest() | AddRequest():
            return "control" if request.flags & Flag.RECOVERY_ADD else "adds"
        case SliceReadRequest():
            return "reads"
        case ReadRequest() | BatchReadRequest():
            is_control = request.master_key is not None or request.flags & Flag.HIGH_PRIORITY
            return "control" if is_control else "reads"
        case _:
            return "adds"


class Judge:
    """Follows every request, connection and attempt. Its methods raise violations."""

    def __init__(self, world: TransportWorld) -> None:
        self.world = world
        self.by_serial: dict[int, Asked] = {}
        self.coming_in: list[Answer] = []
        self.nonsense_sent = 0
        self.reports = 0

    # Requests.

    def begun(self, asked: Asked) -> None:
        lane, now = asked.lane, asked.begun
        self.by_serial[asked.serial] = asked
        asked.before = [one for one in lane.open if one.keys & asked.keys]
        lane.open[asked] = None
        lane.recent = [at for at in lane.recent if at > now - 2.1]
        lane.recent.append(now)

    def replied(self, asked: Asked, code: Code, result: Any) -> None:
        world, lane, now = self.world, asked.lane, self.world.loop.time()
        world.require(not asked.is_new, f"{asked} was answered before it was sent")
        world.require(asked.is_open, f"{asked} was answered twice")
        asked.is_open = False
        asked.ended_at = now
        lane.open.pop(asked, None)
        lane.ended.update(dict.fromkeys(asked.keys, now))
        world.counts[code.name] += 1
        age = now - asked.begun
        world.require(age < asked.timeout_s + 0.001, f"{asked} was answered after {age:.3f} s")
        if not self._is_of_its_answer(asked, code, result):
            self._judge_local(asked, code, result, age)
        before, asked.before = asked.before, []
        is_calm = not lane.is_disturbed(asked.begun) and not asked.is_excused
        if is_calm and not world.is_closed and not any(one.is_open for one in before):
            took = now - max([asked.begun, *(one.ended_at for one in before)])
            world.require(
                took < PROMPT_SECONDS,
                f"{asked}: {code.name} after {took:.3f} s although nothing is wrong",
            )

    def _is_of_its_answer(self, asked: Asked, code: Code, result: Any) -> bool:
        """Whether an answer with this result to this request has just arrived."""
        if asked.what == "run":
            return self._is_of_answers_to_run(asked, code)
        for answer in self.coming_in:
            frame = answer.frame
            if frame is None or answer.is_used or answer.code is not code:
                continue
            is_its = (
                frame.asked is asked
                if asked.what in NUMBERED
                else frame.key in asked.keys and frame.at >= asked.begun
            )
            if is_its:
                there = tuple(result) if asked.what in NUMBERED else result
                self.world.require(
                    there == answer.result, f"{asked} got {there!r}, not {answer.result!r}"
                )
                answer.is_used = True
                return True
        return False

    def _is_of_answers_to_run(self, asked: Asked, code: Code) -> bool:
        if not self.coming_in and code in _LOCAL:
            return False
        if asked.answered_as_run is code:
            return True
        codes = [said for _, said in asked.answers]
        if not codes:
            return False
        worst = max(map(seriousness, codes))
        is_whole = {key for key, _ in asked.answers} >= asked.keys
        is_lost = asked.lane.lost_at >= asked.begun  # the rest of the run is lost too
        if not is_whole and not (worst == len(_SERIOUS) - 1 and is_lost):
            return False
        return code in codes and seriousness(code) >= worst

    def _judge_local(self, asked: Asked, code: Code, result: Any, age: float) -> None:
        world = self.world
        world.require(code in _LOCAL, f"{asked}: {code.name}, which no answer says")
        world.require(not result, f"{asked}: {code.name} with {result!r}")
        if world.is_closed:
            return
        if code is Code.TIMEOUT:
            early = asked.timeout_s - age
            world.require(early < 0.001, f"{asked} timed out {early:.3f} s early")
        elif code is Code.UNAVAILABLE:
            self._explain_unavailable(asked, age)
        else:
            self._explain_busy(asked)

    def _explain_unavailable(self, asked: Asked, age: float) -> None:
        lane, now = asked.lane, self.world.loop.time()
        lost_at = lane.lost_at if asked.what == "run" else max(lane.lost_at, lane.cut_at)
        is_now = now - lost_at < TOLD_SECONDS
        is_paused = now <= lane.next_at[1] + TOLD_SECONDS
        is_cut_off = asked.what == "run" and lane.lost_at >= asked.begun
        is_cut_off = is_cut_off and (now - lane.lost_at < LOOSE_SECONDS or bool(self.coming_in))
        self.world.require(
            is_now or is_paused or is_cut_off,
            f"{asked} is UNAVAILABLE after {age:.3f} s for nothing",
        )

    def _explain_busy(self, asked: Asked) -> None:
        lane = asked.lane
        is_full = len(lane.recent) > REQUESTS_MAX
        is_stuck = any(line.is_full or line.is_deaf for line in lane.open_lines)
        is_stuck = is_stuck or lane.held_at == self.world.loop.time()
        self.world.require(is_full or is_stuck, f"{asked} is BUSY for nothing")

    def slowed(self, frame: Frame) -> None:
        """Record that the answer to a request comes late or never.

        Earlier requests may be behind it, because they moved to another connection.
        """
        asked = frame.asked
        latest = frame.at if asked is None else asked.begun
        for one in frame.line.lane.open:
            if one is asked or (frame.key in one.keys and one.begun <= latest):
                one.is_excused = True

    # Frames and answers.

    def written(self, line: Line, request: Request) -> Frame:
        """Check a sent request: a user made it, its lane is right, and it is not sent twice."""
        world, lane = self.world, line.lane
        world.require(
            lane_of(request) == lane.name, f"{request} goes over the connection of {lane.name}"
        )
        key: Any
        asked: Asked | None = None
        match request:
            case AddRunRequest():
                asked = self._of_body(request.body, request.entry_ids)
                key = "id", request.request_id
                sent = (request.ledger_id, tuple(request.entry_ids), bytes(request.body))
                self._check_run(asked, line, sent, request.master_key)
                world.require(
                    not any(frame.line is line and frame.key == key for frame in asked.frames),
                    f"{asked} goes twice over one connection",
                )
                world.require(
                    # Bytes from before the refusal may still have waited.
                    not line.refused_runs or asked.begun < line.refused_at,
                    f"{asked} goes as a run that was refused",
                )
                world.require(
                    asked.serial > line.told_after or asked.begun < line.made_at,
                    f"a LAC that was told after {asked} was sent before it",
                )
            case AddRequest():
                key = "add", request.ledger_id, request.entry_id
                asked = self._of_body(request.entry, (request.entry_id,))
                whole = asked.request
                place = list(whole.entry_ids).index(request.entry_id)
                world.require(
                    b"".join(whole.entries[place]) == bytes(request.entry)
                    and request.master_key == whole.master_key,
                    f"another entry {request.entry_id} than that of {asked}",
                )
            case ReadRequest():
                key = "read", request.ledger_id, request.entry_id
                is_asked = key in lane.ended or any(key in one.keys for one in lane.open)
                world.require(is_asked, f"{request} was not asked for")
            case BatchReadRequest():
                asked = self.by_serial.get(request.size_bytes_max - SIZE_BASE)
                world.require(asked is not None, f"{request} was not asked for")
                assert asked is not None
                wanted = asked.request
                world.require(
                    wanted.ledger_id == request.ledger_id
                    and wanted.first_entry_id == request.first_entry_id
                    and wanted.count_max == request.count_max,
                    f"{request} is not what {asked} wants",
                )
                key = "id", request.request_id
            case SliceReadRequest():
                asked = self.by_serial.get(request.size_bytes_max - SIZE_BASE)
                world.require(asked is not None, f"{request} was not asked for")
                assert asked is not None
                wanted = asked.request
                world.require(
                    wanted.ledger_id == request.ledger_id
                    and tuple(wanted.entries) == request.entries,
                    f"{request} is not what {asked} wants",
                )
                key = "id", request.request_id
            case TellLacRequest():
                world.require(not line.refused_lacs, f"{request} although LACs are refused")
                world.tells_written += 1
                line.told_after = world.serial
                return Frame(line, request, ("tell", request.last_add_confirmed), None)
            case _:
                raise world.violation(f"{request} goes out")
        frame = Frame(line, request, key, asked)
        if asked is not None:
            world.require(
                asked.is_open or asked.ended_at >= line.made_at,
                f"{asked} was answered, and is sent over a new connection",
            )
            asked.frames.append(frame)
        else:
            for one in lane.open:
                if key in one.keys:
                    one.frames.append(frame)
        world.require(key not in line.open_frames, f"two requests for {key} are on one connection")
        line.open_frames[key] = frame
        return frame

    def _of_body(self, body: Any, entry_ids: Sequence[int]) -> Asked:
        serial = int.from_bytes(bytes(body[16:24]), "big")
        asked = self.by_serial.get(serial)
        self.world.require(asked is not None, f"entries {entry_ids} were not asked for")
        assert asked is not None
        return asked

    def _check_run(self, asked: Asked, line: Line, sent: tuple[Any, ...], key: bytes) -> None:
        whole = asked.request
        body = b"".join(b"".join(entry) for entry in whole.entries)
        wanted = (whole.ledger_id, tuple(whole.entry_ids), body)
        self.world.require(
            sent == wanted and key == whole.master_key, f"another run than {asked} on {line.lane}"
        )

    def coming(self, line: Line, answers: list[Answer]) -> None:
        """Record answers that are complete now. The results of their requests come now."""
        self.coming_in = answers
        for answer in answers:
            frame = answer.frame
            if frame is None:
                line.has_garbage = True
                continue
            if isinstance(frame.request, TellLacRequest):
                line.refused_lacs = True
                continue
            frame.is_answered = True
            line.open_frames.pop(frame.key, None)
            if frame.asked is None or answer.code is None:
                continue
            if isinstance(frame.request, AddRequest):
                frame.asked.answers.append((frame.key, answer.code))
            elif answer.code is Code.BAD_REQUEST:
                line.refused_at = self.world.loop.time()
                line.refused_runs = True
            elif isinstance(frame.request, AddRunRequest):
                frame.asked.answered_as_run = answer.code

    def came(self, line: Line, answers: list[Answer]) -> None:
        """Check the requests after their answers were handled."""
        self.coming_in = []
        world, lane = self.world, line.lane
        if line.has_garbage:
            world.require(line.is_over, f"nonsense from {line.bookie.name} was taken")
            return
        lane.came_in(is_sure=not line.is_over)
        is_late = bool(answers) and not line.is_over
        if is_late and line.protocol is lane.link._connection and not lane.open:
            kept = sum(len(queue) for queue in lane.link._deadlines._queues.values())
            world.require(not kept, f"{kept} requests are kept that were answered")
        self.check_lines(lane)

    # Connections.

    def lost(self, line: Line, *, over_a_run: bool = False) -> None:
        """Record that a fault ended a connection. With `over_a_run`, requests are sent again."""
        lane, now = line.lane, self.world.loop.time()
        lane.disturb(now)
        lane.cut_at = now
        if not over_a_run or lane.link._connection is not line.protocol:
            lane.lost_at = now

    def closing(self, line: Line) -> None:
        """Record that the protocol is about to be notified of the loss of a connection."""
        connection = line.lane.link._connection
        is_its_own = connection is not None and connection is line.protocol
        if is_its_own and not line.protocol.has_answered:
            line.lane.failed()

    def aborted(self, line: Line) -> None:
        """Check the reason for which the client closes a connection.

        The reasons are invalid bytes, two newer connections, or no waiting request.
        """
        lane, now = line.lane, self.world.loop.time()
        is_older = any(other.made_at >= line.made_at and other is not line for other in lane.lines)
        if line.has_nonsense or is_older or self.world.is_closed or self.world.is_over(lane):
            lane.lost_at = now

    def check_lines(self, lane: Lane) -> None:
        """Check that a lane has one connection in use, and one retired one with open requests."""
        world, link = self.world, lane.link
        lines = lane.open_lines
        settled = [line for line in lines if line.protocol is not link._connection]
        if link._connecting is not None:
            settled = [line for line in settled if line is not lines[-1]]
        world.require(len(settled) <= 1, f"{len(lines)} connections to {lane.bookie.name}")
        for line in settled:
            wanted = {key for one in lane.open for key in one.keys}
            is_wanted = bool(line.is_held or line.protocol._unsent_bytes) or any(
                frame.key in wanted or (frame.asked is not None and frame.asked.is_open)
                for frame in line.open_frames.values()
            )
            world.require(is_wanted, f"a retired connection to {lane.bookie.name} stays")

    def check_open(self, lane: Lane) -> None:
        """Check that each open request is sent, behind another request, or about to be sent."""
        world, now = self.world, self.world.loop.time()
        busy_lines = [line for line in lane.open_lines if line.is_held]
        is_trying = now - lane.attempt_at < CONNECT_SECONDS
        waiting = sum(one.begun < now for one in lane.open)
        world.require(waiting <= REQUESTS_MAX, f"{waiting} requests wait for {lane.bookie.name}")
        connection = lane.link._connection
        if connection is not None and connection._is_writing_paused:
            kept = connection._unsent_bytes
            world.require(kept <= UNSENT_BYTES_MAX + 8_000, f"{kept} bytes wait to be sent")
        for asked in lane.open:
            age = now - asked.begun
            world.require(age < asked.timeout_s + 0.001, f"{asked} waits for {age:.3f} s")
            is_there = bool(busy_lines) or is_trying or self._is_on_the_wire(asked, now)
            if is_there:
                asked.loose_since = None
            elif asked.loose_since is None:
                asked.loose_since = now
            else:
                loose = now - asked.loose_since
                world.require(
                    loose < LOOSE_SECONDS, f"{asked} is nowhere since {loose:.3f} s, never sent"
                )

    def _is_on_the_wire(self, asked: Asked, now: float) -> bool:
        is_behind = any(
            one.is_open or now - one.ended_at < LOOSE_SECONDS for one in asked.before
        )  # so these requests are sent
        return is_behind or any(
            frame.asked is asked or (frame.key in asked.keys and frame.at >= asked.begun)
            for line in asked.lane.open_lines
            for frame in line.open_frames.values()
        )


SIZE_BASE = 10_000
"""Batches are distinguished by their requested size: this number plus a serial number."""
