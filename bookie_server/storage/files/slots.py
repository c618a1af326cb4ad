"""Creates slot files ahead of use, and reuses slots that the durable MANIFEST lists as free."""

from __future__ import annotations

from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.settings import FILE_SIZE_BYTES_MIN, StorageSettings
from bookie_server.core.slot_header import (
    HEADER_AREA_SIZE,
    SlotHeader,
    SlotState,
    decode_slot_header,
    encode_slot_header,
)
from bookie_server.errors import DiskFullError, TooManyFilesError
from bookie_server.ports import File
from bookie_server.storage.files.entry_log_file import OpenFile
from bookie_server.storage.files.pool import FilePool

LAST_RESORT_FRACTION = 16


class Slots:
    """Prepares slots for new files, and gives each slot a new identity."""

    def __init__(self, files: FilePool, settings: StorageSettings) -> None:
        self._files = files
        self._settings = settings

    async def prepare(
        self, file_id: int, free_slot: str | None, *, is_last_resort: bool = False
    ) -> OpenFile:
        """Return an empty file with a new identity. Its blocks, header and name are durable.

        The file uses `free_slot`, which the durable MANIFEST must list as free. If `free_slot` is
        None, the file uses a new slot, which is removed after a DiskFullError or TooManyFilesError.
        With `is_last_resort`, the file is small and may use the space that is otherwise kept free,
        so that a bookie with a full disk still starts.
        """
        size, kept_free = self._settings.file_size_bytes, self._settings.free_bytes_min
        if is_last_resort:
            size = max(FILE_SIZE_BYTES_MIN, size // LAST_RESORT_FRACTION // 4096 * 4096)
            kept_free = 0
        name = free_slot or f"slot-{file_id:08d}"
        handle = await self._files.open(name, create=True)
        try:
            # A freed slot may be shorter, because it was cut after the index of its former file.
            await self._require_room(size - await handle.size(), kept_free, name)
            await handle.allocate(size)
            salt = self._files.random_bytes(16).hex()
            entry = FileEntry(file_id, name, salt, FileState.OPEN, size)
            await write_header(handle, entry)
            await self._files.sync_directory()
        except BaseException as error:
            await handle.close()
            if free_slot is None and isinstance(error, (DiskFullError, TooManyFilesError)):
                await self._files.remove(name)
            raise
        return OpenFile(entry, handle, entry.identity, is_recycled=free_slot is not None)

    async def discard(self, file: OpenFile) -> None:
        """Close a prepared file that no MANIFEST lists as in use. Remove its slot if it is new."""
        await file.handle.close()
        if not file.is_recycled:
            await self._files.remove(file.entry.slot)

    async def _require_room(self, growth: int, kept_free: int, name: str) -> None:
        if growth > 0 and await self._files.free_space() < growth + kept_free:
            raise DiskFullError(
                f"{growth} more bytes for a file would leave less than {kept_free} bytes free; "
                "make room or add bookies",
                path=name,
            )


async def write_header(handle: File, entry: FileEntry) -> None:
    """Write and sync the header of a file. If the file is finished, its index must be durable."""
    before = decode_slot_header(await handle.read(0, HEADER_AREA_SIZE))
    header = SlotHeader(
        state=SlotState[entry.state.name],
        generation=1 if before is None else before.generation + 1,
        file_id=entry.file_id,
        salt=bytes.fromhex(entry.salt),
        file_size=entry.size_bytes,
        finish_offset=entry.finish_offset,
        last_sequence=entry.last_sequence,
    )
    await handle.write(header.sector_offset, (encode_slot_header(header),))
    await handle.datasync()


async def is_intact(handle: File, entry: FileEntry) -> bool:
    """Return whether the header of the slot contains the identity that the MANIFEST lists."""
    header = decode_slot_header(await handle.read(0, HEADER_AREA_SIZE))
    return header is not None and header.identity(entry.slot) == entry.identity
