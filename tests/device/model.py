"""The states of a directory that a power loss may leave after traced system calls.

Only a sync of a file makes its writes and its size durable, and only a sync of the directory makes
changes of names durable. Any subset of the other changes may survive. A write may be torn at
sectors of 512 bytes. A change that has not ended when a sync begins is not covered by this sync.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.device.trace import Call

SECTOR = 512
LOCK = "LOCK"


@dataclass(slots=True, eq=False)
class Change:
    """One change of a file's bytes: a write, or a new size.

    Attributes:
        size: The new size; -1 for a write.
        only_grows: Whether the new size comes from an allocation.
    """

    call: Call
    offset: int = 0
    data: bytes = b""
    size: int = -1
    only_grows: bool = False

    def apply(self, content: bytearray, kept: range | None = None) -> None:
        """Apply the change. Of a write, apply only the bytes in `kept`."""
        if self.size >= 0:
            if not self.only_grows:
                del content[self.size :]
            content.extend(bytes(max(0, self.size - len(content))))
            return
        data = self.data if self.call.result is None else self.data[: max(0, self.call.result)]
        start, end = (0, len(data)) if kept is None else (kept.start, min(kept.stop, len(data)))
        content.extend(bytes(max(0, self.offset + end - len(content))))
        content[self.offset + start : self.offset + end] = data[start:end]


@dataclass(slots=True, eq=False)
class Inode:
    """One file."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def left(self, random: Random | None, *, is_kept: bool) -> bytes:
        """The bytes after a power loss; without `random`, all pending changes survive or none."""
        content = bytearray(self.durable)
        for change in self.pending:
            fate = random.randrange(3) if random else is_kept
            if fate == 1:
                change.apply(content)
            elif fate == 2 and random is not None:
                for start in range(0, len(change.data), SECTOR):
                    if random.random() < 0.5:
                        change.apply(content, range(start, start + SECTOR))
        return bytes(content)


@dataclass(slots=True, eq=False)
class NameChange:
    """One change of names, which survives as a whole or not at all."""

    call: Call
    names: dict[str, Inode | None]


State = dict[str, Inode]


class Device:
    """A directory, and the calls of its process."""

    def __init__(self, directory: Path, untraced: Collection[str] = (LOCK,)) -> None:
        self._directory = str(directory)
        self._untraced = untraced
        self._descriptors: dict[int, Inode | str] = {}
        self._positions: dict[int, int] = {}
        self._syncs: dict[Call, list[Change] | list[NameChange]] = {}
        self.seen: State = {}
        self.durable: State = {}
        self.pending: list[NameChange] = []
        self.syncs = 0

    def take(self, call: Call, marks: Path) -> dict[str, Any] | None:
        """Process the begin or end of a call. Return a mark if the call wrote one.

        The result is None for other calls; `changed` is true if the call concerned the device.
        """
        self.changed = False
        if call.result is not None and call.result < 0:
            return None
        name = call.name
        if name == "openat":
            self._open(call, marks)
        elif name == "close":
            if call.result is not None:
                self._descriptors.pop(call.numbers[0], None)
        elif name in ("rename", "unlink"):
            self._change_names(call)
        else:
            target = self._descriptors.get(call.numbers[0])
            if target == "marks":
                is_mark = name == "write" and call.result is not None
                return dict(json.loads(call.strings[0])) if is_mark else None
            if target == "directory":
                if name == "fsync":
                    self._sync_names(call)
            elif isinstance(target, Inode):
                self._change(target, call)
        return None

    def _name_of(self, path: bytes) -> str | None:
        folder, _, name = path.decode().rpartition("/")
        return name if folder == self._directory and name not in self._untraced else None

    def _open(self, call: Call, marks: Path) -> None:
        if call.result is None:
            return
        path = call.strings[0].decode()
        name = self._name_of(call.strings[0])
        if path == str(marks):
            self._descriptors[call.result] = "marks"
        elif path == self._directory:
            self._descriptors[call.result] = "directory"
        elif name is not None:
            if name not in self.seen:
                self._set(NameChange(call, {name: Inode()}))
            self._descriptors[call.result] = self.seen[name]
            self._positions[call.result] = 0
        else:
            self._descriptors.pop(call.result, None)

    def _change_names(self, call: Call) -> None:
        if call.result is None:
            return
        names = [self._name_of(path) for path in call.strings]
        if None in names:
            return
        source = str(names[0])
        moved = self.seen[source]
        change = NameChange(call, {source: None})
        if call.name == "rename":
            change.names[str(names[1])] = moved
        self._set(change)

    def _set(self, change: NameChange) -> None:
        self.changed = True
        self.pending.append(change)
        _apply(change, self.seen)

    def _sync_names(self, call: Call) -> None:
        self.changed = True
        if call.result is None:
            self._syncs[call] = list(self.pending)
            return
        self.syncs += 1
        covered = self._syncs.pop(call)
        for change in covered:
            assert isinstance(change, NameChange)
            _apply(change, self.durable)
        self.pending = [change for change in self.pending if change not in covered]

    def _change(self, inode: Inode, call: Call) -> None:
        self.changed = True
        if call.name in ("fsync", "fdatasync"):
            if call.result is None:
                self._syncs[call] = [c for c in inode.pending if c.call.result is not None]
                return
            self.syncs += 1
            covered = self._syncs.pop(call)
            for change in covered:
                assert isinstance(change, Change)
                change.apply(inode.durable)
            inode.pending = [change for change in inode.pending if change not in covered]
        elif call.result is None:
            inode.pending.append(_change_of(call, self._positions.get(call.numbers[0], 0)))
        elif call.name == "write":
            self._positions[call.numbers[0]] += call.result

    def states(self, random: Random) -> Iterator[dict[str, tuple[Inode, bytes]]]:
        """Some of the directories that a power loss now may leave.

        In the first ones, all pending changes of a kind survive or none. The last one is random.
        """
        for names_kept in (False, True):
            for data_kept in (False, True):
                yield self._left(None, names_kept=names_kept, data_kept=data_kept)
        yield self.left(random)

    def left(self, random: Random) -> dict[str, tuple[Inode, bytes]]:
        """One directory that a power loss now may leave: each pending change may survive."""
        return self._left(random, names_kept=False, data_kept=False)

    def _left(
        self, random: Random | None, *, names_kept: bool, data_kept: bool
    ) -> dict[str, tuple[Inode, bytes]]:
        names = dict(self.durable)
        for change in self.pending:
            if names_kept if random is None else random.random() < 0.5:
                _apply(change, names)
        return {
            name: (inode, inode.left(random, is_kept=data_kept)) for name, inode in names.items()
        }


def _apply(change: NameChange, names: State) -> None:
    for name, inode in change.names.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _change_of(call: Call, position: int) -> Change:
    """The change of a call. `position` is where a `write` without an offset begins."""
    if call.name == "ftruncate":
        return Change(call, size=call.numbers[1])
    if call.name == "fallocate":
        return Change(call, size=call.numbers[2] + call.numbers[3], only_grows=True)
    if call.name == "write":
        return Change(call, offset=position, data=b"".join(call.strings))
    assert call.name in ("pwrite64", "pwritev", "pwritev2"), call.name
    # The last argument of pwritev2 has flags.
    offset = call.numbers[-2 if call.name == "pwritev2" else -1]
    return Change(call, offset=offset, data=b"".join(call.strings))
