"""The parts of the text format of Protocol Buffers that BookKeeper's records need.

Fields have the form `name: value` or `name { ... }`. Values are numbers, names and quoted strings
with C escapes. Comments start with `#`. Lists, extensions and `<...>` messages are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ledgerlog_spark.errors import WireFormatError

_DEPTH_MAX = 4
_TOKEN = re.compile(
    r"""
      (?P<space>[\s,;]+|\#[^\n]*)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>-?[0-9]+)(?![A-Za-z0-9_.])
    | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
    | (?P<mark>[{}:])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_SIMPLE = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip
_SHORT_ESCAPES = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}
_PRINTABLE = range(0x20, 0x7F)
_INTEGER_DIGITS_MAX = 20

Value = int | str | bytes
"""A number, a name without quotes (a member of an enum), or the bytes of a quoted string."""


@dataclass(slots=True)
class TextMessage:
    """A parsed message. The fields keep their order, and a name may occur several times."""

    values: list[tuple[str, Value]] = field(default_factory=list)
    messages: list[tuple[str, TextMessage]] = field(default_factory=list)


def quoted(value: bytes) -> str:
    """Return `value` as a quoted string. Bytes that are not printable ASCII become escapes."""
    characters = (
        _SHORT_ESCAPES.get(byte) or (chr(byte) if byte in _PRINTABLE else f"\\{byte:03o}")
        for byte in value
    )
    return f'"{"".join(characters)}"'


def unescaped(literal: str) -> bytes:
    """Return the bytes of the quoted string `literal`, which includes its quotes."""

    def replaced(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, simple = match.groups()
        if octal is not None and int(octal, 8) <= 0xFF:  # noqa: PLR2004 - a byte
            return bytes([int(octal, 8)])
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if simple in _SIMPLE:
            return _SIMPLE[simple]
        raise WireFormatError(f"unknown escape {match[0]!r}")

    return _ESCAPE.sub(replaced, literal[1:-1].encode("utf-8", "surrogateescape"))


def parse(text: bytes) -> TextMessage:
    """Return the message that `text` describes."""
    parser = _Parser(text.decode("utf-8", "surrogateescape"))
    message = parser.message(0)
    if parser.kind:
        raise parser.refusal()
    return message


class _Parser:
    def __init__(self, text: str) -> None:
        self._source = text
        self._offset = 0
        self.kind = ""
        self.text = ""
        self._advance()

    def refusal(self) -> WireFormatError:
        return WireFormatError(
            f"text format: unexpected {self.text[:40]!r} at character {self._offset}",
            offset=self._offset,
        )

    def _advance(self) -> None:
        while True:
            self.kind = self.text = ""
            if self._offset == len(self._source):
                return
            match = _TOKEN.match(self._source, self._offset)
            if match is None:
                self.text = self._source[self._offset : self._offset + 1]
                raise self.refusal()
            self._offset = match.end()
            self.kind, self.text = match.lastgroup or "", match[0]
            if self.kind != "space":
                return

    def message(self, depth: int) -> TextMessage:
        if depth > _DEPTH_MAX:
            raise self.refusal()
        message = TextMessage()
        while self.kind == "name":
            name = self.text
            self._advance()
            has_colon = self.text == ":"
            if has_colon:
                self._advance()
            if self.text == "{":
                self._advance()
                message.messages.append((name, self.message(depth + 1)))
                if self.text != "}":
                    raise self.refusal()
                self._advance()
            elif has_colon:
                message.values.append((name, self._value()))
            else:
                raise self.refusal()
        return message

    def _value(self) -> Value:
        kind, text = self.kind, self.text
        if kind == "string":
            return self._string()
        if kind == "number" and len(text) <= _INTEGER_DIGITS_MAX:
            self._advance()
            return int(text)
        if kind == "name":
            self._advance()
            return text
        raise self.refusal()

    def _string(self) -> bytes:
        parts: list[bytes] = []
        while self.kind == "string":
            parts.append(unescaped(self.text))
            self._advance()
        return b"".join(parts)
