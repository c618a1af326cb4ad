"""Metadata service URIs: `zk://host:port;host:port/ledgers`, as Apache BookKeeper writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ledgerlog_spark.errors import ConfigurationError

PORT_DEFAULT = 2181
PORT_MAX = 65_535
EXAMPLE = "zk://127.0.0.1:2181/ledgers"

LAYOUTS = {
    "zk": None,
    "zk+null": None,
    "zk+hierarchical": "hierarchical",
    "zk+longhierarchical": "longhierarchical",
    "zk+flat": "flat",
}
"""The name of the layout for each scheme of a URI.

If the name is None, the cluster's LAYOUT node contains the layout.
"""

_URI = re.compile(r"(?P<scheme>[^:/]+)://(?P<hosts>[^/]*)(?P<root>.*)", re.DOTALL)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_ROOT = re.compile(r"(?:/[A-Za-z0-9._-]+)+")


@dataclass(frozen=True, slots=True)
class ServiceUri:
    """The address of a cluster's metadata."""

    hosts: tuple[str, ...]  # `host:port` of each server
    root: str  # such as `/ledgers`
    layout: str | None = None  # the layout in the scheme; None if the scheme has no layout

    @property
    def connect_string(self) -> str:
        """The `host:port` of all servers, separated by commas."""
        return ",".join(self.hosts)

    def __str__(self) -> str:
        scheme = "zk" if self.layout is None else f"zk+{self.layout}"
        return f"{scheme}://{';'.join(self.hosts)}{self.root}"


def parse_service_uri(text: str) -> ServiceUri:
    """Parse a metadata service URI."""
    if not isinstance(text, str):
        raise _wrong(text, "it is not of type str")
    match = _URI.fullmatch(text.strip())
    if match is None:
        raise _wrong(text, "it does not begin with a scheme such as zk://")
    scheme = match["scheme"].lower()
    if scheme not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        raise _wrong(text, f"the scheme {match['scheme']!r} is not one of {known}")
    hosts = tuple(_host(text, part.strip()) for part in re.split("[,;]", match["hosts"]))
    root = match["root"].rstrip("/")
    if not root:
        raise _wrong(text, "the path after the hosts is missing (usually /ledgers)")
    if not _ROOT.fullmatch(root) or {".", ".."} & set(root.split("/")):
        raise _wrong(text, f"{match['root']!r} is not a path of nodes")
    return ServiceUri(hosts, root, LAYOUTS[scheme])


def _host(text: str, part: str) -> str:
    match = _HOST.fullmatch(part)
    if match is None:
        raise _wrong(text, f"{part!r} is not host:port" if part else "a host is missing")
    port = int(match["port"] or PORT_DEFAULT)
    if not 0 < port <= PORT_MAX:
        raise _wrong(text, f"{port} is not a port")
    return f"{match['host']}:{port}"


def _wrong(text: object, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{text!r} is not a metadata service URI: {reason}. One looks like {EXAMPLE}", uri=text
    )
