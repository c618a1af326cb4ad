r"""A bookie's cookie, which is stored in a node and in `VERSION` files (WIRE.md#znodes).

A cookie is the line `5`, and then a `CookieFormat` message as text. `ledgerDirs` and `indexDirs`
each contain the number of directories and then the directories, all separated by tabs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.wire.protobuf.text import parse, quoted

_VERSION_LINE = b"5\n"
_NAMES = ("bookieHost", "journalDir", "ledgerDirs", "instanceId", "indexDirs")
_REQUIRED = ("bookieHost", "journalDir", "ledgerDirs")


@dataclass(frozen=True, slots=True)
class Cookie:
    """The bookie that a directory belongs to, and the directories of this bookie."""

    bookie_id: str
    journal_directory: str  # as configured; several directories are separated by commas
    ledger_directories: tuple[str, ...]
    instance_id: str | None = None  # UUID of the cluster; None in old cookies
    index_directories: tuple[str, ...] | None = None  # None if they are the ledger directories

    def encode(self) -> bytes:
        """Return the text of the cookie. Its first line is the version."""
        lines = [
            ("bookieHost", self.bookie_id),
            ("journalDir", self.journal_directory),
            ("ledgerDirs", _joined(self.ledger_directories)),
        ]
        if self.instance_id is not None:
            lines.append(("instanceId", self.instance_id))
        if self.index_directories is not None:
            lines.append(("indexDirs", _joined(self.index_directories)))
        text = "".join(f"{name}: {quoted(value.encode())}\n" for name, value in lines)
        return _VERSION_LINE + text.encode()

    @classmethod
    def decode(cls, data: bytes) -> Cookie:
        """Return the cookie in the bytes of a node or file."""
        if not data.startswith(_VERSION_LINE):
            raise WireFormatError(
                f"not a cookie of version 5: {data[:40]!r}; only Apache BookKeeper's newest "
                "cookies can be read"
            )
        message = parse(data[len(_VERSION_LINE) :])
        found: dict[str, str] = {}
        for name, value in message.values:
            if name not in _NAMES or name in found or not isinstance(value, bytes):
                raise WireFormatError(
                    f"the field {name} of a cookie is unknown, repeated or not a string", field=name
                )
            found[name] = _text(name, value)
        if message.messages or any(name not in found for name in _REQUIRED):
            raise WireFormatError(
                f"a cookie has the fields {sorted(found)}, but needs {', '.join(_REQUIRED)}"
            )
        index_directories = found.get("indexDirs")
        return cls(
            bookie_id=found["bookieHost"],
            journal_directory=found["journalDir"],
            ledger_directories=_split(found["ledgerDirs"]),
            instance_id=found.get("instanceId"),
            index_directories=None if index_directories is None else _split(index_directories),
        )


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as cause:
        raise WireFormatError(f"{name} of a cookie is not UTF-8 text", field=name) from cause


def _joined(directories: tuple[str, ...]) -> str:
    return "\t".join([str(len(directories)), *directories])


def _split(text: str) -> tuple[str, ...]:
    count, *directories = text.split("\t")
    if count != str(len(directories)):
        raise WireFormatError(
            f"a cookie announces {count!r} directories, but lists {len(directories)}"
        )
    return tuple(directories)
