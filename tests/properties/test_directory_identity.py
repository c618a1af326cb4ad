"""Random lives of a directory and its copies: a loss is recognised, and no newest state is refused.

A life has starts, stops, writes, rises of the counter, crashes between the MANIFEST and the record,
times without a metadata store, copies, restored copies, and moves. The test knows how many writes
each state of the directory has, and the program only sees ids and counters.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from bookie_server.core.directory_identity import ACCEPTED, DirectoryIdentity, compare
from ledgerlog_spark.wire.known_bookie import KnownBookie

NO_IDENTITY = DirectoryIdentity()


@dataclass(frozen=True)
class Directory:
    """A state of a directory. The test compares `writes`, and the program only `identity`."""

    identity: DirectoryIdentity = NO_IDENTITY
    writes: int = 0


@dataclass
class Life:
    """One bookie, its record, and the copies of its directory."""

    here: Directory = Directory()
    newest: Directory = Directory()
    record: KnownBookie | None = None
    is_running: bool = False
    is_away: bool = False  # the metadata store
    copies: list[Directory] = field(default_factory=list)
    ids: int = 0
    rises: int = 0  # of the counter

    def become(self, directory: Directory) -> None:
        """The bookie changes its directory, which it was allowed to use."""
        self.here = self.newest = directory

    def raise_counter(self, *, is_start: bool = False) -> None:
        identity = self.here.identity
        if not identity.directory_id:
            identity = replace(identity, directory_id=self.new_id())
        identity = replace(
            identity, changes=identity.changes + 1, starts=identity.starts + is_start
        )
        self.rises += 1
        self.become(replace(self.here, identity=identity))

    def write_record(self) -> None:
        if not self.is_away:
            self.record = self.here.identity.known()

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:016x}"

    def start(self, *, is_cut: bool) -> None:
        if self.is_running or self.is_away:
            return
        is_accepted = compare(self.here.identity, self.record) in ACCEPTED
        assert is_accepted or self.here != self.newest, "the newest state is refused"
        if not is_accepted:
            self.here = self.newest  # the operator brings the newest directory
            return
        self.raise_counter(is_start=True)
        if not is_cut:
            self.write_record()
            self.is_running = True

    def stop(self, *, is_clean: bool) -> None:
        if self.is_running:
            if is_clean:
                self.raise_counter()
                self.write_record()
            self.is_running = False

    def tick(self) -> None:
        if self.is_running:
            if self.record == self.here.identity.known():
                self.raise_counter()
            self.write_record()

    def write(self) -> None:
        if self.is_running:
            self.become(replace(self.here, writes=self.here.writes + 1))

    def restore(self, number: int) -> None:
        if self.copies and not self.is_running:
            self.here = self.copies[number % len(self.copies)]

    def move(self, *, is_cut: bool) -> None:
        """`bookie cookie fix`, which an operator runs with the newest directory."""
        if self.is_running or self.is_away or self.here != self.newest:
            return
        before = self.here.identity
        if not before.directory_id:
            return
        moved = replace(
            before,
            directory_id=self.new_id(),
            previous_id=before.directory_id,
            changes=before.changes + 1,
        )
        self.become(replace(self.here, identity=moved))
        if not is_cut:
            self.write_record()


STEPS = (
    "start", "start that is cut off", "stop", "kill", "tick", "write", "copy", "restore",
    "away", "back", "move", "move that is cut off",
)  # fmt: skip


def play(life: Life, step: str, number: int) -> None:
    match step:
        case "start" | "start that is cut off":
            life.start(is_cut=step != "start")
        case "stop" | "kill":
            life.stop(is_clean=step == "stop")
        case "tick":
            life.tick()
        case "write":
            life.write()
        case "copy":
            life.copies.append(life.here)
        case "restore":
            life.restore(number)
        case "move" | "move that is cut off":
            life.move(is_cut=step != "move")
        case _:
            life.is_away = step == "away"


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=40))
def test_the_newest_state_is_never_refused(steps: list[tuple[str, int]]) -> None:
    life = Life()
    for step, number in steps:
        play(life, step, number)
    life.stop(is_clean=False)
    life.is_away, life.here = False, life.newest
    life.start(is_cut=False)
    assert life.is_running


LIFE = st.lists(st.sampled_from(("write", "tick", "stop", "kill", "start")), max_size=20)


@given(before=LIFE, after=LIFE, is_moved=st.booleans())
def test_a_copy_is_refused_exactly_if_the_counter_rose_after_it(
    before: list[str], after: list[str], is_moved: bool
) -> None:
    life = Life()
    life.start(is_cut=False)
    for step in before:
        play(life, step, 0)
    copy, rises = life.here, life.rises
    for step in after:
        play(life, step, 0)
    if is_moved:
        life.stop(is_clean=False)
        life.move(is_cut=False)
    is_accepted = compare(copy.identity, life.record) in ACCEPTED
    assert is_accepted is (life.rises == rises and not is_moved)


@given(starts=st.integers(0, 5), is_clean=st.booleans())
def test_a_move_that_was_cut_off_is_continued_only_if_the_original_was_not_used(
    starts: int, is_clean: bool
) -> None:
    life = Life()
    life.start(is_cut=False)
    life.stop(is_clean=is_clean)
    original = life.here
    life.move(is_cut=True)
    moved = life.here
    assert compare(moved.identity, life.record) in ACCEPTED
    life.here = life.newest = original
    for _ in range(starts):
        life.start(is_cut=False)
        life.write()
        life.stop(is_clean=False)
    assert (compare(moved.identity, life.record) in ACCEPTED) is (starts == 0)
