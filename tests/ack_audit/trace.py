"""System calls of one strace output, in the order in which they began and ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CALL = re.compile(r"^(\d+) +(\w+)\((.*?)(?: <unfinished \.\.\.>|\) += (-?\d+)(?: .*)?)$")
RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>.*\) += (-?\d+)(?: .*)?$")
DESCRIPTOR = re.compile(r"^(\d+)<(.*?)>[,)]?")
BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


@dataclass(frozen=True, slots=True)
class Moment:
    """A system call begins or ends.

    Attributes:
        call: Number of the call in the trace; its begin and its end share it.
        is_end: Whether it is the end. Then `result` is the result of the call.
        target: The target of the descriptor: a path, or `TCP:[...]`.
        content: The bytes of all buffers that the call writes.
    """

    call: int
    name: str
    is_end: bool
    descriptor: int
    target: str
    content: bytes
    result: int


def moments(path: Path) -> Iterator[Moment]:
    """Every begin and end in a trace that was made with `-f -yy -xx` and whole strings."""
    open_calls: dict[tuple[str, str], Moment] = {}
    with path.open() as lines:
        for number, line in enumerate(lines):
            if resumed := RESUMED.match(line):
                thread, name, result = resumed.groups()
                begun = open_calls.pop((thread, name))
                yield _ended(begun, int(result))
            elif called := CALL.match(line):
                thread, name, arguments, result_text = called.groups()
                begun = _begun(number, name, arguments)
                yield begun
                if result_text is None:
                    open_calls[thread, name] = begun
                else:
                    yield _ended(begun, int(result_text))


def _begun(number: int, name: str, arguments: str) -> Moment:
    at = DESCRIPTOR.match(arguments)
    descriptor, target = (int(at.group(1)), at.group(2)) if at else (-1, "")
    parts = BYTES.findall(arguments)
    assert not any(cut for _, cut in parts), "strace cut a string: raise its -s"
    content = b"".join(bytes.fromhex(text.replace("\\x", "")) for text, _ in parts)
    return Moment(number, name, False, descriptor, target, content, 0)


def _ended(begun: Moment, result: int) -> Moment:
    return Moment(
        begun.call,
        begun.name,
        True,
        begun.descriptor,
        begun.target,
        begun.content,
        result,
    )
