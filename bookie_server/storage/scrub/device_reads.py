"""Reads a file from the device instead of the page cache, at the rate of the scrub."""

from __future__ import annotations

from bookie_server.errors import FreedFileError, StorageError, TooManyFilesError
from bookie_server.ports import Priority
from bookie_server.storage.compaction.pace import Pace
from bookie_server.storage.files.entry_log_file import FinishedFile
from bookie_server.storage.shared import Shared

PAGE_SIZE_BYTES = 4_096
UNREADABLE_PAGES_MAX = 1_024
"""Maximum number of unreadable pages of a file. If a file has more unreadable pages, the device
counts as failed, and the file is not verified."""


class DeviceReads:
    """The bytes of one file on the device.

    A device usually reports a bad sector instead of returning wrong bytes. So after an error, each
    page is read alone, and zeros replace the pages that cannot be read. Zeros pass no checksum.
    """

    def __init__(self, shared: Shared, file: FinishedFile, pace: Pace) -> None:
        self._shared = shared
        self._handle = file.handle
        self._pace = pace
        self._unreadable = 0

    async def begin(self) -> None:
        """Drop the pages of the file from the page cache.

        The bytes of a finished file never change. So a page that another reading puts in the cache
        later also comes from the device.
        """
        await self._handle.drop_cache(Priority.BACKGROUND)

    async def read(
        self, offset: int, size: int, _priority: Priority = Priority.BACKGROUND
    ) -> bytes:
        """Return `size` bytes from `offset`, or fewer bytes if the file ends earlier.

        Raises:
            StorageError: Too many pages of the file cannot be read, or the storage ends.
        """
        self._require_time()
        try:
            data = await self._pace.read(self._handle, offset, size)
        except (FreedFileError, TooManyFilesError):
            raise
        except StorageError:
            data = await self._by_page(offset, size)
        self._shared.counters.scrub_bytes += len(data)
        return data

    def _require_time(self) -> None:
        # Check this before each read, because the device may need many seconds for a page that it
        # cannot read.
        if self._pace.must_end:
            raise StorageError("the scrub ends, because the storage ends", path=self._handle.name)

    async def _by_page(self, offset: int, size: int) -> bytes:
        parts = []
        at, end = offset, offset + size
        while at < end:
            self._require_time()
            edge = min(end, (at // PAGE_SIZE_BYTES + 1) * PAGE_SIZE_BYTES)
            try:
                part = await self._pace.read(self._handle, at, edge - at)
            except (FreedFileError, TooManyFilesError):
                raise
            except StorageError:
                self._unreadable += 1
                if self._unreadable > UNREADABLE_PAGES_MAX:
                    raise
                part = bytes(edge - at)
            parts.append(part)
            if len(part) < edge - at:
                break
            at = edge
        return b"".join(parts)
