"""Writes of one node.

If an answer is lost, the call itself finds out whether the write happened.
"""

from __future__ import annotations

from collections.abc import Callable

from ledgerlog_spark.errors import MetadataVersionError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.model import Version

ATTEMPTS_MAX = 4
CONFLICTS_MAX = 100


async def write_node(
    tree: znodes.ZnodeTree, path: str, data: bytes, version: Version | None
) -> Version | None:
    """Create a node (if `version` is None) or replace its data. Return the new version.

    If an answer is lost and the store has the same data, the data counts as written.

    Returns:
        None if another process wrote or deleted the node first. In this case, nothing was changed.
    """
    attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
    for attempt in attempts:
        with attempt:
            try:
                if version is None:
                    return (await tree.create(path, data, make_parents=True)).version
                return await tree.set(path, data, version)
            except (znodes.NodeExistsError, znodes.NodeMissingError, MetadataVersionError):
                found = await znodes.get_or_none(tree, path)
                if attempts.lost is None or found is None or found.value != data:
                    return None
                return found.version
    raise attempts.error()


async def put_node(tree: znodes.ZnodeTree, path: str, data: bytes) -> None:
    """Create a node, or replace its data whatever its version is. A repetition is harmless."""
    attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
    for attempt in attempts:
        with attempt:
            try:
                await tree.set(path, data, None)
            except znodes.NodeMissingError:
                try:
                    await tree.create(path, data, make_parents=True)
                except (znodes.NodeExistsError, znodes.NodeMissingError):
                    await tree.set(path, data, None)
            return
    raise attempts.error()


async def update_node(
    tree: znodes.ZnodeTree, path: str, changed: Callable[[bytes | None], bytes]
) -> Version:
    """Create a node with `changed(None)`, or replace its data by `changed(data)`.

    The version of the node always rises. After a lost answer or a conflict, the update is repeated.
    Therefore `changed` may get its own earlier result, and must accept it.

    Raises:
        MetadataVersionError: Other processes wrote the node first, `CONFLICTS_MAX` times.
    """
    attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
    for attempt in attempts:
        with attempt:
            for _ in range(CONFLICTS_MAX):
                version = await _update_once(tree, path, changed)
                if version is not None:
                    return version
            raise MetadataVersionError(
                f"other processes changed {path} during each of {CONFLICTS_MAX} attempts; "
                "try again",
                path=path,
            )
    raise attempts.error()


async def _update_once(
    tree: znodes.ZnodeTree, path: str, changed: Callable[[bytes | None], bytes]
) -> Version | None:
    found = await znodes.get_or_none(tree, path)
    try:
        if found is not None:
            return await tree.set(path, changed(found.value), found.version)
        return (await tree.create(path, changed(None), make_parents=True)).version
    except (znodes.NodeExistsError, znodes.NodeMissingError, MetadataVersionError):
        await tree.sync(path)  # the read may be stale, or another process removes empty directories
        return None


async def delete_node(tree: znodes.ZnodeTree, path: str, version: Version | None) -> bool:
    """Delete a node if it has this version, or in any case if `version` is None.

    Returns:
        True if the node was deleted. False if it has another version, or did not exist. After a
        lost answer, a missing node counts as deleted by this call.
    """
    attempts = znodes.WriteAttempts(ATTEMPTS_MAX)
    for attempt in attempts:
        with attempt:
            try:
                await tree.delete(path, version)
            except znodes.NodeMissingError:
                return attempts.lost is not None
            except MetadataVersionError:
                return False
            return True
    raise attempts.error()
