"""The test vectors that the encoders of Apache BookKeeper printed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

_RECORDS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "apache_bookkeeper_4_17.json").read_text()
)


def records(*kinds: str) -> list[dict[str, Any]]:
    return [record for record in _RECORDS if record["kind"] in kinds]


def parametrized(*kinds: str) -> pytest.MarkDecorator:
    chosen = records(*kinds)
    assert chosen, kinds
    names = [
        "-".join(str(value)[:24] for key, value in record.items() if key not in HIDDEN)
        for record in chosen
    ]
    return pytest.mark.parametrize("record", chosen, ids=names)


HIDDEN = ("kind", "frame", "entry", "frame_class", "bytes", "text", "password", "master_key")


def payload_of(record: dict[str, Any]) -> bytes:
    return bytes((7 * i + 3) & 0xFF for i in range(int(record["payload_bytes"])))


def same_bytes(data: bytes, expected: str) -> bool:
    """Whether `data` is the vector's hex or, for a long vector, has its hash."""
    if expected.startswith("sha256:"):
        return hashlib.sha256(data).hexdigest() == expected.removeprefix("sha256:")
    return data.hex() == expected
