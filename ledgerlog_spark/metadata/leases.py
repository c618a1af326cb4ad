"""Leases on a tree of nodes. Each held lease is an ephemeral node.

A lease only saves work: it keeps two processes from doing the same work at the same time. It
protects no data; the versions of nodes do that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ledgerlog_spark.errors import (
    ConfigurationError,
    MetadataFormatError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata import tree as znodes

ATTEMPTS_MAX = 4
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class Leases:
    """Named leases. At most one live session holds each lease.

    The nodes of leases are outside the ledgers root, so Apache's tools never see them.
    """

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._directory = f"{root}-leases"

    async def acquire(self, name: str, holder: Mapping[str, str]) -> bool:
        """Take the lease if it is free. Return True if this session now holds the lease.

        After a lost reply, the owner of the node shows the outcome.
        """
        path = self._path(name)
        data = json.dumps(dict(holder), sort_keys=True).encode()
        attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
        for attempt in attempts:
            with attempt:
                try:
                    await self._tree.create(path, data, kind=znodes.NodeKind.EPHEMERAL)
                except znodes.NodeMissingError:
                    await znodes.make_persistent(self._tree, self._directory)
                except znodes.NodeExistsError:
                    stat = await znodes.synced_stat(self._tree, path)
                    if stat is not None:
                        return stat.owner == self._tree.session_id
                else:
                    return True
        if attempts.lost is not None:
            raise attempts.lost
        return False

    async def release(self, name: str) -> None:
        """Give the lease back. Do nothing if this session does not hold the lease."""
        path = self._path(name)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            stat = await znodes.synced_stat(self._tree, path)
            if stat is None or stat.owner != self._tree.session_id:
                return
            try:
                await self._tree.delete(path, stat.version)
            except (znodes.NodeMissingError, MetadataVersionError):
                return
            except MetadataUnknownError:
                if attempt == ATTEMPTS_MAX:
                    raise
            else:
                return

    async def holder(self, name: str) -> Mapping[str, str] | None:
        """The data that the holder of the lease stored about itself; None for a free lease."""
        path = self._path(name)
        record = await znodes.get_or_none(self._tree, path)
        if record is None:
            return None
        try:
            said = json.loads(record.value)
        except ValueError as error:
            raise MetadataFormatError(f"{path} is not JSON: {error}", path=path) from error
        if not isinstance(said, dict):
            raise MetadataFormatError(f"{path} is not a JSON object", path=path)
        return {str(key): str(value) for key, value in said.items()}

    def _path(self, name: str) -> str:
        if not _NAME.fullmatch(name) or name in (".", ".."):
            raise ConfigurationError(
                f"{name!r} cannot be the name of a lease: use 1 to 200 letters, digits, dots, "
                "dashes and underscores, but not '.' or '..'",
                name=name,
            )
        return f"{self._directory}/{name}"
