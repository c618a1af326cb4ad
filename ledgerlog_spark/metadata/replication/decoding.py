"""The error for a node whose data cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ledgerlog_spark.errors import MetadataFormatError, WireFormatError

T = TypeVar("T")


def decoded(path: str, decode: Callable[[bytes], T], data: bytes) -> T:
    """Return the decoded value of the node `path`.

    Raises:
        MetadataFormatError: A later release wrote the node, or the node is damaged.
    """
    try:
        return decode(data)
    except WireFormatError as error:
        raise MetadataFormatError(
            f"the node {path} cannot be read, and was not changed: {error.message}", path=path
        ) from error
