"""Leases on a tree of nodes. A lease that a session holds is an ephemeral node (`held_nodes`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ledgerlog_spark.errors import ConfigurationError, MetadataFormatError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.held_nodes import HeldNodes

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class Leases:
    """Named leases. At most one live session holds each lease.

    The nodes of leases are outside the ledgers root, so Apache's tools never see them.
    """

    def __init__(self, tree: znodes.ZnodeTree, root: str) -> None:
        self._tree = tree
        self._directory = f"{root}-leases"
        self._held = HeldNodes(tree, self._directory)

    async def acquire(self, name: str, holder: Mapping[str, str]) -> bool:
        """Take the lease if it is free. Return whether this session now holds the lease."""
        data = json.dumps(dict(holder), sort_keys=True).encode()
        return await self._held.acquire(self._path(name), data)

    async def release(self, name: str) -> None:
        """Give the lease back. Do nothing if this session does not hold the lease."""
        await self._held.release(self._path(name))

    @property
    def session_id(self) -> int:
        """The id of the session that takes leases in `acquire`.

        If it changes, the session was replaced, and its leases are lost. A process that works under
        a lease compares this id with the id at the start of its work.
        """
        return self._tree.session_id

    async def holder(self, name: str) -> Mapping[str, str] | None:
        """Return the data that a lease's holder stored about itself; None if the lease is free."""
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
