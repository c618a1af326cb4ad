"""Checks the types of arguments of public calls. After a failed check, the call changes nothing.

Without these checks, a wrong argument would raise a TypeError in the middle of a call, perhaps
after a request was sent.
"""

from __future__ import annotations

from typing import NoReturn

from ledgerlog_spark.errors import LocalProtocolError


def check_type(argument: str, value: object, kind: type) -> None:
    """Raise LocalProtocolError if the value of an argument is not of type `kind`."""
    # Other types of integers, such as the types of numpy, and other objects with bytes are
    # accepted.
    accepted = (bytes, bytearray, memoryview) if kind is bytes else kind
    if not (hasattr(value, "__index__") if kind is int else isinstance(value, accepted)):
        _refuse(argument, value, f"of type {kind.__name__}")


def check_optional(argument: str, value: object, kind: type) -> None:
    """Raise LocalProtocolError if the value of an argument is neither None nor of type `kind`."""
    if value is not None:
        check_type(argument, value, kind)


def check_callback(callback: object, argument: str = "on_change") -> None:
    """Raise LocalProtocolError if a callback cannot be called."""
    if not callable(callback):
        _refuse(argument, callback, "a function")


def check_iterable(argument: str, values: object) -> None:
    """Raise LocalProtocolError if the values of an argument cannot be iterated over."""
    if not (hasattr(values, "__iter__") or hasattr(values, "__getitem__")):
        _refuse(argument, values, "a list")


def _refuse(argument: str, value: object, wanted: str) -> NoReturn:
    found = type(value).__name__
    raise LocalProtocolError(
        f"{argument} must be {wanted}, got {found}", argument=argument, type=found
    )
