"""How fast is BookKeeper's Java client (version 2 of its protocol) with ledgerlog's bookies?

The same client runs with three bookies of ledgerlog, and with three bookies of Apache BookKeeper.
The runs alternate. Each figure contains the median ratio of two runs that follow each other.
`--peer` is required, because the Java client is a part of the rig (`peer_bookkeeper`). ZooKeeper,
the bookies and the client run on this machine. While one cluster is measured, the other cluster is
idle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ledgerlog_spark as ll
from benchmarks import peer_bookkeeper
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show


@dataclass(frozen=True)
class Case:
    """One row of the output: its name, the command of the client, and the required ratio."""

    name: str
    command: tuple[str, ...]
    goal_to_peer: float
    unit: str = "entries/s"


def cases(seconds: float) -> tuple[Case, ...]:
    """Return all cases. Each run appends for `seconds`, or reads the same ledger three times."""
    duration = f"{seconds:g}"
    return (
        Case("adds, 1 KiB, 2,000 outstanding", ("append", "1024", "2000", duration, "1"), 1.0),
        Case("single reads, 1 KiB", ("read", "1024", "100000", "100", "20", "3"), 1.0),
        Case("batch reads of 100 x 1 KiB", ("batch", "1024", "100000", "100", "4", "3"), 0.8),
        Case("adds, 64 KiB, 64 outstanding", ("append", "65536", "64", duration, "1"), 1.0),
        Case("adds, 1 KiB, 100 outstanding", ("append", "1024", "100", duration, "1"), 1.0),
    )


def alternate(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    """Run both clusters in each round. Every second round begins with the peer."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            peer = theirs()
            pairs.append((ours(), peer))
        else:
            own = ours()
            pairs.append((own, theirs()))
    return pairs


def main() -> None:
    """Measure both clusters with each case."""
    options = parsed(__doc__, with_only=True)
    if options.peer is None:
        raise SystemExit("no --peer: name the directory of the rig that has the Java client")
    chosen = [
        case for case in cases(options.seconds) if not options.only or options.only in case.name
    ]
    if not chosen:
        raise SystemExit(f"no figure has {options.only!r} in its name")
    figures = []
    with (
        ll.local_cluster(bookies=3, directory=options.directory) as cluster,
        peer_bookkeeper.running(options.peer) as rig,
    ):
        assert rig is not None
        uri = cluster.metadata_service_uri.replace("zk://", "zk+hierarchical://", 1)
        for case in chosen:
            command = case.command
            pairs = alternate(
                lambda command=command: rig.client_rate(command, uri),  # type: ignore[misc]
                lambda command=command: rig.client_rate(command),  # type: ignore[misc]
                options.rounds,
            )
            ratio = median([own / peer for own, peer in pairs])
            own = [own for own, _ in pairs]
            figures.append(
                Figure(
                    case.name,
                    median(own),
                    case.unit,
                    tuple(own),
                    goal_to_peer=case.goal_to_peer,
                    # The ratio of the medians would compare runs that were made at different times.
                    peer=median(own) / ratio,
                    peer_name=peer_bookkeeper.NAME,
                )
            )
    show("foreign_client", figures, as_json=options.json)


if __name__ == "__main__":
    main()
