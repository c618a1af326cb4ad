"""Ends, at a start, the session of the bookie's previous process if that was killed.

The metadata store keeps the registration of a killed bookie for a session timeout. Its next start
does not wait for that: the file `SESSION` in its directory has the secret to end the old session,
and the lock on the directory shows that the previous process is dead. That is proof only if the
file was written under the same lock: by the same running kernel, and on the same inode. After a
reboot, or for a copied directory, the old session is left to its timeout.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bookie_server.service.logging import get_logger
from bookie_server.storage.device.filesystem import LOCK_NAME
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.tree import ZnodeTree

SESSION_FILE: Final = "SESSION"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
_logger = get_logger("session")


class SessionFile:
    """The file `SESSION` of a directory that the caller has locked."""

    def __init__(self, directory: Path, boot_id: Path = BOOT_ID) -> None:
        """Reads and writes nothing yet.

        `boot_id` differs after each start of the kernel. Without such a file no session is ever
        ended.
        """
        self._path = directory / SESSION_FILE
        self._lock_path = directory / LOCK_NAME
        self._boot_id = boot_id

    async def take_over(self, tree: ZnodeTree) -> Callable[[], None]:
        """End the session of this bookie's last process, and from now on store that of `tree`.

        Failures cost time only: the old session ends by its timeout. Returns a function that stops
        following `tree` from one session to the next.
        """
        secret = self._recall()
        if secret is not None:
            try:
                await tree.end_session(secret)
            except LedgerLogError as error:
                _logger.warning("old_session_not_ended", reason=str(error))
        self._remember(tree)
        return tree.watch_session(lambda: self._remember(tree))

    def _remember(self, tree: ZnodeTree) -> None:
        """Write the file; after an interrupted write it is not JSON and is ignored."""
        record = {**self._holder(), "secret": tree.session_secret.hex()}
        try:
            with os.fdopen(os.open(self._path, _FLAGS, 0o600), "wb") as file:
                file.write(json.dumps(record).encode())
        except OSError as error:
            _logger.warning("session_not_remembered", path=str(self._path), reason=str(error))

    def _recall(self) -> bytes | None:
        """Return the secret, or None unless it was written under the caller's lock."""
        try:
            record = json.loads(self._path.read_bytes())
            holder = self._holder()
            if holder["boot_id"] is None or any(record[k] != v for k, v in holder.items()):
                return None
            return bytes.fromhex(record["secret"]) or None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _holder(self) -> dict[str, Any]:
        """Return the identity of this lock."""
        lock = self._lock_path.stat()
        try:
            boot_id = self._boot_id.read_text().strip() or None
        except OSError:
            boot_id = None
        return {"boot_id": boot_id, "device": lock.st_dev, "inode": lock.st_ino}
