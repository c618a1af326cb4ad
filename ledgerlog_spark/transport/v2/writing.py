"""Writes many pieces to a transport, which pauses its protocol when it holds too much of them.

asyncio's own `writelines` does not pause it in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1
(CVE-2024-12254): the bytes that a peer does not accept would have no bound. `write` pauses it
everywhere.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

_VERSION: Final = sys.version_info[:3]
PAUSES: Final = not ((3, 12) <= _VERSION < (3, 12, 9) or (3, 13) <= _VERSION < (3, 13, 2))


def write_all(
    transport: asyncio.WriteTransport, pieces: Sequence[bytes | bytearray | memoryview]
) -> None:
    """Write the pieces, in order."""
    if PAUSES or not type(transport).__module__.startswith("asyncio"):
        transport.writelines(pieces)
    else:
        transport.write(b"".join(pieces))
