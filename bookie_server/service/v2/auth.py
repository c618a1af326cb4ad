"""The answer to an AUTH frame of a bookie that asks nobody to authenticate.

An AuthMessage is `1: plugin name (string), 2: payload (bytes)`. The bookie names the plugin that
Apache's bookies name when authentication is off, which its clients read as "go ahead".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgerlog_spark.wire.requests import encode_auth

if TYPE_CHECKING:
    from ledgerlog_spark.wire.requests import AuthMessage

PLUGIN_NAME: Final = b"AuthDisabledPlugin"
_NAME_TAG: Final = 0x0A
_PAYLOAD_TAG: Final = 0x12
_MESSAGE: Final = bytes([_NAME_TAG, len(PLUGIN_NAME)]) + PLUGIN_NAME + bytes([_PAYLOAD_TAG, 0])


def answer_to_auth(request: AuthMessage) -> bytes | None:
    """The whole answering frame; None for a request without a message, which closes."""
    if not request.message or request.message[0] not in (_NAME_TAG, _PAYLOAD_TAG):
        return None
    return encode_auth(_MESSAGE, request.version)
