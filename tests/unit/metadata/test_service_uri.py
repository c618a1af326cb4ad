from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.metadata.service_uri import ServiceUri, parse_service_uri


@pytest.mark.parametrize(
    ("text", "hosts", "root", "layout"),
    [
        ("zk://127.0.0.1:2181/ledgers", ("127.0.0.1:2181",), "/ledgers", None),
        ("zk://a:1;b:2,c/x/ledgers/", ("a:1", "b:2", "c:2181"), "/x/ledgers", None),
        ("zk+null://a:1/l", ("a:1",), "/l", None),
        ("zk+hierarchical://a:1/l", ("a:1",), "/l", "hierarchical"),
        ("ZK+longhierarchical://a:1/l", ("a:1",), "/l", "longhierarchical"),
        ("  zk://[::1]:2181/ledgers ", ("[::1]:2181",), "/ledgers", None),
    ],
)
def test_service_uri_is_taken_apart(
    text: str, hosts: tuple[str, ...], root: str, layout: str | None
) -> None:
    parsed = parse_service_uri(text)
    assert parsed == ServiceUri(hosts, root, layout)
    assert parsed.connect_string == ",".join(hosts)
    assert parse_service_uri(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begin with a scheme"),
        ("127.0.0.1:2181/ledgers", "begin with a scheme"),
        ("/ledgers", "begin with a scheme"),
        ("etcd://a:1/l", "scheme 'etcd' is not one of zk, zk\\+null"),
        ("zk+ms://a:1/l", "scheme 'zk\\+ms'"),
        ("zk:///ledgers", "host is missing"),
        ("zk://a:1,/ledgers", "host is missing"),
        ("zk://a:port/ledgers", "'a:port' is not host:port"),
        ("zk://a:1 b:2/ledgers", "is not host:port"),
        ("zk://a:0/ledgers", "0 is not a port"),
        ("zk://a:65536/ledgers", "65536 is not a port"),
        ("zk://a:1", "path after the hosts is missing"),
        ("zk://a:1/", "path after the hosts is missing"),
        ("zk://a:1//ledgers", "not a path of nodes"),
        ("zk://a:1/led gers", "not a path of nodes"),
        ("zk://a:1/../ledgers", "not a path of nodes"),
        ("zk://a:1/./ledgers", "not a path of nodes"),
    ],
)
def test_service_uri_with_a_mistake_is_refused_naming_it(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as refused:
        parse_service_uri(text)
    assert "zk://127.0.0.1:2181/ledgers" in str(refused.value)


@pytest.mark.parametrize("given", [5, b"zk://a:1/l", None])
def test_service_uri_that_is_no_text_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="it is not of type str"):
        parse_service_uri(given)
