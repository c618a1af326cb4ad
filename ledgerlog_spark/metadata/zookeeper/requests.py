"""Creates requests for kazoo, and converts kazoo's answers to results and errors of ledgerlog.

In kazoo's own transactions, the result of a create contains only the path. `Multi` sends
ZooKeeper's newer request to create a node. The result of that request also contains the node's
stat, with the version of the new node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.serialization import (
    CheckVersion,
    Create2,
    Delete,
    MultiHeader,
    SetData,
    Transaction,
    int_struct,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from ledgerlog_spark.errors import (
    LedgerLogError,
    LocalProtocolError,
    MetadataError,
    MetadataVersionError,
    RemoteProtocolError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.model import Version

ANY_VERSION = -1
MULTI_ERROR = -1

LOST = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.CancelledError,
)
"""The errors that mean that a request may have been sent, but will not be answered."""

NOT_CARRIED_OUT = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""The results of operations that were not executed because another operation failed."""


class Multi(Transaction):  # type: ignore[misc]
    """A transaction in which the answer to a create contains the path and stat of the node."""

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        """Return one result or exception for each operation of the transaction."""
        results: list[Any] = []
        header, offset = MultiHeader.deserialize(data, offset)
        while not header.done:
            result: Any = True
            if header.type == Create2.type:
                path, offset = read_string(data, offset)
                result = path, ZnodeStat._make(stat_struct.unpack_from(data, offset))
                offset += stat_struct.size
            elif header.type == SetData.type:
                result = ZnodeStat._make(stat_struct.unpack_from(data, offset))
                offset += stat_struct.size
            elif header.type == MULTI_ERROR:
                result = kazoo_errors.EXCEPTIONS[int_struct.unpack_from(data, offset)[0]]()
                offset += int_struct.size
            results.append(result)
            header, offset = MultiHeader.deserialize(data, offset)
        return results

    @staticmethod
    def unchroot(_client: object, response: list[Any]) -> list[Any]:
        """Return the response unchanged, because no client of this package has a chroot."""
        return response


def multi_of(operations: Sequence[znodes.NodeOperation]) -> Multi:
    """Return the kazoo request for a transaction."""
    return Multi([_request_of(operation) for operation in operations])


def _request_of(operation: znodes.NodeOperation) -> Any:
    match operation:
        case znodes.CheckNode(path, version):
            return CheckVersion(path, version.number)
        case znodes.CreateNode(path, data, kind):
            return Create2(path, data, OPEN_ACL_UNSAFE, flags_of(kind))
        case znodes.SetNode(path, data, version):
            return SetData(path, data, number_of(version))
        case znodes.DeleteNode(path, version):
            return Delete(path, number_of(version))


def flags_of(kind: znodes.NodeKind) -> int:
    """Return ZooKeeper's flags for the creation of a node of this kind."""
    return (1 if kind.is_ephemeral else 0) | (2 if kind.is_sequential else 0)


def number_of(version: Version | None) -> int:
    """Return the version number that ZooKeeper compares; -1 (any version) if `version` is None."""
    return ANY_VERSION if version is None else version.number


def version_of(stat: Any) -> Version:
    """Return this package's version of a node, from ZooKeeper's stat of the node."""
    return Version(incarnation=stat.czxid, number=stat.version)


def stat_of(stat: Any) -> znodes.NodeStat:
    """Return this package's stat of a node, from ZooKeeper's stat of the node."""
    return znodes.NodeStat(
        version=version_of(stat),
        owner=stat.ephemeralOwner,
        size_bytes=stat.dataLength,
        children_count=stat.numChildren,
        created_ms=stat.ctime,
        changed_ms=stat.mtime,
        changed_by=stat.mzxid,
    )


def outcomes_of(
    operations: Sequence[znodes.NodeOperation], results: Sequence[Any]
) -> list[znodes.Created | Version | None]:
    """Return the outcome of each operation of a transaction, or raise TransactionFailedError."""
    failures = [(i, r) for i, r in enumerate(results) if isinstance(r, Exception)]
    if failures:
        blamed = [f for f in failures if not isinstance(f[1], NOT_CARRIED_OUT)] or failures
        index, failure = blamed[0]
        cause = error_of(failure, operations[index].path)
        raise znodes.TransactionFailedError(
            f"operation {index} of {len(operations)} failed: {cause}", index=index, cause=cause
        )
    return [_outcome_of(o, r) for o, r in zip(operations, results, strict=True)]


def written_ms_of(results: Sequence[Any]) -> int | None:
    """Return the time when ZooKeeper ran a transaction; None if no result contains the time."""
    stats = (result[1] if isinstance(result, tuple) else result for result in results)
    return next((stat.mtime for stat in stats if hasattr(stat, "mtime")), None)


def _outcome_of(operation: znodes.NodeOperation, result: Any) -> znodes.Created | Version | None:
    match operation:
        case znodes.CreateNode():
            path, stat = result
            return znodes.Created(path, version_of(stat))
        case znodes.SetNode():
            return version_of(result)
        case _:
            return None


def error_of(failure: BaseException, path: str) -> Exception:
    """Return this package's error for an exception of kazoo.

    A refusal by the server is definite. An invalid answer of the server is not definite.
    """
    for kind, error, says in _REFUSALS:
        if isinstance(failure, kind):
            return error(f"{path} {says}", path=path)
    if isinstance(failure, kazoo_errors.ZookeeperError):
        return MetadataError(f"ZooKeeper refused a request for {path}: {failure!r}", path=path)
    return RemoteProtocolError(
        f"ZooKeeper's answer about {path} is invalid: {failure!r}", definite=False, path=path
    )


_FORBIDDEN = "is forbidden by ZooKeeper's access list: check its ACL and the client's credentials"
_REFUSALS: tuple[tuple[type[Exception], type[LedgerLogError], str], ...] = (
    (kazoo_errors.NoNodeError, znodes.NodeMissingError, "or the node above it does not exist"),
    (kazoo_errors.NodeExistsError, znodes.NodeExistsError, "exists"),
    (kazoo_errors.BadVersionError, MetadataVersionError, "has another version"),
    (kazoo_errors.NotEmptyError, znodes.NodeNotEmptyError, "has children"),
    (kazoo_errors.NoChildrenForEphemeralsError, LocalProtocolError, "is below an ephemeral node"),
    (kazoo_errors.NoAuthError, MetadataError, _FORBIDDEN),
    (kazoo_errors.AuthFailedError, MetadataError, _FORBIDDEN),
)
