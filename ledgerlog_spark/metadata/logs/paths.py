"""Paths of a log's nodes. They are below `<root>-logs`, outside the ledgers root.

    names/<name>                                log id
    ids/<id>                                    empty
    ids/<id>/head                               head
    ids/<id>/pages/<token>                      touched by the sweeper
    ids/<id>/pages/<token>/<number>             page
    ids/<id>/producers/<app>                    producer record
    ids/<id>/producers/<app>/ledgers/<ledger>   epoch, decimal
    ids/<id>/unlisted/<ledger>                  "listed", "staged", "made": the earlier state
    ids/<id>/queue/<token>-<number>             a writer that waits in the queue; ephemeral
    ids/<id>/clock                              written to read the store's clock
    ids/<id>/deleted                            made when the log was deleted

The name of a producer may be any text. In a path the name is UTF-8, percent-encoded.
"""

from __future__ import annotations

from urllib.parse import quote, unquote


def app_segment(app: str) -> str:
    """The node name for a producer."""
    quoted = quote(app, safe="")
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted


def app_of_segment(segment: str) -> str:
    """The producer with the given node name."""
    return unquote(segment)


class LogPaths:
    """Paths of all logs of the cluster that has its ledgers at `root`."""

    def __init__(self, root: str) -> None:
        self.top = f"{root}-logs"
        self.names = f"{self.top}/names"
        self.ids = f"{self.top}/ids"

    def name(self, name: str) -> str:
        """The path of the node with a log's id, by the log's name."""
        return f"{self.names}/{name}"

    def log(self, log_id: str) -> str:
        """The path of the node above all other nodes of a log."""
        return f"{self.ids}/{log_id}"

    def head(self, log_id: str) -> str:
        """The path of the head of a log."""
        return f"{self.ids}/{log_id}/head"

    def pages(self, log_id: str, token: str | None = None) -> str:
        """The path of the node above all pages, or above the pages with one token."""
        above = f"{self.ids}/{log_id}/pages"
        return above if token is None else f"{above}/{token}"

    def page(self, log_id: str, token: str, number: int) -> str:
        """The path of one page."""
        return f"{self.ids}/{log_id}/pages/{token}/{number}"

    def producers(self, log_id: str) -> str:
        """The path of the node above all producer records."""
        return f"{self.ids}/{log_id}/producers"

    def producer(self, log_id: str, app: str) -> str:
        """The path of a producer record."""
        return f"{self.ids}/{log_id}/producers/{app_segment(app)}"

    def registrations(self, log_id: str, app: str) -> str:
        """The path of the node above a producer's registrations."""
        return f"{self.producer(log_id, app)}/ledgers"

    def registration(self, log_id: str, app: str, ledger_id: int) -> str:
        """The path of one registration."""
        return f"{self.registrations(log_id, app)}/{ledger_id}"

    def marks(self, log_id: str) -> str:
        """The path of the node above the marks of ledgers that no version lists."""
        return f"{self.ids}/{log_id}/unlisted"

    def mark(self, log_id: str, ledger_id: int) -> str:
        """The path of the mark of one ledger."""
        return f"{self.marks(log_id)}/{ledger_id}"

    def queue(self, log_id: str) -> str:
        """The path of the node above the writers that wait in the queue."""
        return f"{self.ids}/{log_id}/queue"

    def clock(self, log_id: str) -> str:
        """The path of the node that is written to read the store's clock."""
        return f"{self.ids}/{log_id}/clock"

    def deleted(self, log_id: str) -> str:
        """The path of the node with the time when a log was deleted."""
        return f"{self.ids}/{log_id}/deleted"
