"""The system calls of one traced process that change files, as they begin and end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "openat",
    "close",
    "write",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "fsync",
    "fdatasync",
    "ftruncate",
    "fallocate",
    "rename",
    "unlink",
)
STRING_BYTES_MAX = 1 << 24
_CALL = re.compile(r"^(\d+) +(\w+)\((.*?)(?:\) += (-?\d+)(?: .*)?| <unfinished \.\.\.>)$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>.*\) += (-?\d+)(?: .*)?$")
_KILLED = re.compile(r"\) += \?$")
"""The end of a call during which the process was killed."""
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


def command(trace: Path) -> list[str]:
    """The start of a command line that traces the rest."""
    traced = ["-e", "trace=" + ",".join(CALLS)]
    return ["strace", "-f", "-v", "-xx", "-s", str(STRING_BYTES_MAX), *traced, "-o", str(trace)]


@dataclass(slots=True, eq=False)
class Call:
    """One system call.

    Attributes:
        numbers: The arguments after the strings; for calls with a descriptor, this is the first.
        strings: The strings of the arguments: paths or bytes.
        result: None until the call ends.
    """

    name: str
    numbers: list[int]
    strings: list[bytes] = field(default_factory=list)
    result: int | None = None


def calls(path: Path) -> Iterator[Call]:
    """Each call twice: as it begins, with `result` None, and as it ends."""
    begun: dict[tuple[str, str], Call] = {}
    with path.open() as lines:
        for each in lines:
            line = _KILLED.sub(" <unfinished ...>", each)
            if line != each and "resumed>" in line:
                continue  # it has begun, and never ends
            if resumed := _RESUMED.match(line):
                thread, name, result = resumed.groups()
                call = begun.pop((thread, name))
            elif called := _CALL.match(line):
                thread, name, arguments, result = called.groups()
                call = _parsed(name, arguments)
                yield call
                if result is None:
                    begun[thread, name] = call
                    continue
            else:
                assert "+++" in line or "---" in line, line[:200]
                continue
            call.result = int(result)
            yield call


def _parsed(name: str, arguments: str) -> Call:
    strings = _STRING.findall(arguments)
    assert not any(cut for _, cut in strings), "strace cut a string"
    numbers = re.findall(r"(?<![\w=])-?\d+(?!\w)", _STRING.sub("", arguments))
    content = [bytes.fromhex(text.replace("\\x", "")) for text, _ in strings]
    return Call(name, [int(number) for number in numbers], content)
