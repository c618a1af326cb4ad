"""Converts the notes of auto-recovery (`repair_notes`) to the bytes of a node, and back.

A node contains JSON in ASCII with sorted keys: the fields of the note, its `type`, and `format`. A
reader refuses another format, unknown fields, fields of another type, and nodes that exceed the
limits of this module.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from ledgerlog_spark.errors import WireFormatError

FORMAT: Final = 1
SIZE_BYTES_MAX: Final = 262_144
ITEMS_MAX: Final = 1_000
"""Maximum number of elements of a list in a note."""
TEXT_MAX: Final = 1_000
"""Maximum number of characters of one string in a note. `encode_note` shortens longer strings."""
_NUMBER_END: Final = 1 << 63

Note = TypeVar("Note")


def encode_note(note: Any) -> bytes:
    """Return the bytes of the node for a note, which is an object of a class of `repair_notes`."""
    values = {**_shortened(asdict(note)), "format": FORMAT, "type": type(note).__name__}
    data = json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")
    if len(data) > SIZE_BYTES_MAX:
        raise WireFormatError(
            f"a note of type {type(note).__name__} has {len(data):,} bytes, more than "
            f"{SIZE_BYTES_MAX:,}",
            size_bytes=len(data),
        )
    return data


def decode_note(kind: type[Note], data: bytes) -> Note:
    """Decode the note of the class `kind` from the bytes of a node."""
    if len(data) > SIZE_BYTES_MAX:
        raise WireFormatError(
            f"a note has {len(data):,} bytes, more than {SIZE_BYTES_MAX:,}", size_bytes=len(data)
        )
    try:
        values = json.loads(data.decode("ascii"))
        version, name = values.pop("format"), values.pop("type")
        if type(version) is int and version == FORMAT and name == kind.__name__:
            note: Note = _decoded(kind, values)
            return note
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireFormatError(f"not a note of auto-recovery ({error}): {data[:40]!r}") from error
    raise WireFormatError(
        f"a note has type {str(name)[:40]!r} and format {str(version)[:40]!r}, but this release "
        f"reads here only {kind.__name__!r} with format {FORMAT}; use a newer release if a "
        "newer one wrote the note",
        format=version,
    )


def _shortened(value: Any) -> Any:
    """Return the value in a form for JSON. Texts are cut to `TEXT_MAX` characters."""
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_shortened(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return value[:TEXT_MAX] if isinstance(value, str) else value


@cache
def _types(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _decoded(kind: Any, value: Any) -> Any:
    """Convert `value` to the type `kind`. Raises ValueError or TypeError."""
    if is_dataclass(kind) and isinstance(kind, type):
        types = _types(kind)
        if not isinstance(value, dict) or value.keys() != types.keys():
            raise ValueError(f"the fields of {kind.__name__} are {', '.join(types)}")
        return kind(**{name: _decoded(types[name], each) for name, each in value.items()})
    if get_origin(kind) is tuple:
        return _decoded_tuple(get_args(kind), value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:40]!r} is not of type {kind.__name__}")
    if kind is int and not -1 <= value < _NUMBER_END:
        raise ValueError(f"{value} is not between -1 and 2**63 - 1")
    if kind is str and len(value) > TEXT_MAX:
        raise ValueError(f"a string has more than {TEXT_MAX} characters")
    return value


def _decoded_tuple(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) > ITEMS_MAX:
        raise ValueError(f"not a list of at most {ITEMS_MAX} elements")
    if kinds[-1] is not Ellipsis:
        return tuple(_decoded(kind, each) for kind, each in zip(kinds, value, strict=True))
    return tuple(_decoded(kinds[0], each) for each in value)
