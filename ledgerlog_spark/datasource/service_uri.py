"""Which ZooKeeper a source talks to (design 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "LEDGERLOG_METADATA_SERVICE_URI"
DEFAULT = "zk://localhost:2181/ledgers"


def resolve_service_uri(
    *, option: str | None, configured: str | None, environment: Mapping[str, str]
) -> str:
    """The first that is set of: option, `configure(spark)`, environment, the default.

    The environment is that of Spark's Python processes: a variable set after the JVM started is
    not in it.
    """
    return option or configured or environment.get(VARIABLE) or DEFAULT
