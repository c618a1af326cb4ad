"""Opens the storage of a bookie with its settings.

All directories share the memory, the descriptors and the speed of compaction that a bookie may use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bookie_server.config import BookieSettings, Place
from bookie_server.core.disk_use import DiskSettings
from bookie_server.core.settings import ModeSettings, StorageSettings
from bookie_server.ports import FileSystem, MetadataCheck, Tasks
from bookie_server.service.logging import fields_of, get_logger
from bookie_server.storage.device.runtime import OsClock
from bookie_server.storage.directories.opening import BookieStorage, open_directories
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared

from bookie_server.core.disk_use import DiskLevel
from bookie_server.errors import StorageError, lost_directory_advice
