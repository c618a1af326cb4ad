"""The file AUDIT of a directory: a line for each loss that an operator accepted.

The file is only for people and their tools. No start reads it. After a crash, the last line may be
incomplete. In this case, a line feed is written before the next line.
"""

from __future__ import annotations

from typing import Final

from bookie_server.errors import StorageError
from bookie_server.ports import FileSystem
from ledgerlog_spark.wire.accepted_loss import AcceptedLoss

NAME: Final = "AUDIT"
SIZE_BYTES_MAX: Final = 16 << 20


class AuditFile:
    """The file AUDIT of one directory."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    async def append(self, loss: AcceptedLoss) -> None:
        """Append a line. It is durable on return.

        Raises:
            StorageError: The line was not written, or the file is full.
        """
        file = await self._files.open(NAME, create=True)
        try:
            end = await file.size()
            line = loss.encode() + b"\n"
            if end + len(line) > SIZE_BYTES_MAX:
                raise StorageError(
                    f"the file {NAME} has {end} bytes, and may have {SIZE_BYTES_MAX}. Nothing was "
                    "accepted: move the file to another place, then run this command again",
                    path=NAME,
                    definite=True,
                )
            if end and await file.read(end - 1, 1) != b"\n":
                line = b"\n" + line
            await file.write(end, (line,))
            await file.datasync()
        finally:
            await file.close()
        await self._files.sync_directory()
