"""Runs single rounds of a benchmark for `compare`: `python -m benchmarks.rounds append`.

As soon as its cluster runs, the process prints the names of its figures as one line of JSON. Then
the process reads names of figures from standard input. For each name, it runs one round and prints
the value of the figure.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import ledgerlog_spark as ll
from benchmarks import append, read, recovery, spark_read, spark_write
from benchmarks.spark_engines import SETTING
from benchmarks.spark_session import generated, session

Rounds = dict[str, Callable[[], float]]
"""A map from the name of each figure to a function, which runs one round and returns the figure. A
larger figure is better, so a time is returned as its inverse, in 1/s."""
LOG_LINES_SHOWN = 20


@contextmanager
def cluster_with_logs() -> Iterator[ll.Cluster]:
    """Run a cluster of three bookies. If a round fails, print the ends of the bookies' logs."""
    with ll.local_cluster(bookies=3) as cluster:
        try:
            yield cluster
        except BaseException:
            for log in sorted(cluster.directory.glob("bookie-*.log")):
                lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
                print(f"{log.name}:", *lines, sep="\n  ", file=sys.stderr)
            raise


@contextmanager
def of_append(seconds: float) -> Iterator[Rounds]:
    """Yield the rounds of all cases of `append`."""
    with cluster_with_logs() as cluster, ll.connect(cluster.metadata_service_uri) as client:

        def one(case: append.Case) -> float:
            value = append.measure(client, case, seconds)
            return 1e3 / value if case.lower_is_better else value

        yield {case.name: partial(one, case) for case in append.CASES}


@contextmanager
def of_read(_seconds: float) -> Iterator[Rounds]:
    """Yield the rounds of all cases of `read`. All rounds of a case read the same ledger."""
    with cluster_with_logs() as cluster, ll.connect(cluster.metadata_service_uri) as client:
        yield {
            case.name: partial(read.read, client, read.fill(client, case), case)
            for case in read.CASES
        }


@contextmanager
def of_recovery(_seconds: float) -> Iterator[Rounds]:
    """Yield the rounds of `recovery`. Each round seals one ledger."""
    with cluster_with_logs() as cluster, ll.connect(cluster.metadata_service_uri) as client:
        yield {"seal": lambda: 1e3 / recovery.seal_ms(client, cluster.metadata_service_uri)}


@contextmanager
def of_spark_write(_seconds: float) -> Iterator[Rounds]:
    """Yield the rounds of `spark_write`. The figure is in M rows/s."""
    with cluster_with_logs(), session() as spark:
        rows = generated(spark, spark_write.ROWS)

        def write() -> float:
            begun = time.perf_counter()
            rows.write.format("ledger").mode("overwrite").save("written")
            return spark_write.ROWS / (time.perf_counter() - begun) / 1e6

        yield {"write 5 M rows": write}


@contextmanager
def of_spark_read(_seconds: float) -> Iterator[Rounds]:
    """Yield the rounds of `spark_read`. The figure is in M rows/s."""
    with cluster_with_logs(), session() as spark:
        generated(spark, spark_read.ROWS).write.format("ledger").mode("overwrite").save("read")
        spark.conf.set(SETTING, "python")  # releases without the JVM engine have only this source
        log = spark.read.format("ledger").load("read")

        def whole() -> float:
            begun = time.perf_counter()
            spark_read.drained(log)
            return spark_read.ROWS / (time.perf_counter() - begun) / 1e6

        yield {"read 10 M rows": whole}


WORLDS: dict[str, Callable[[float], AbstractContextManager[Rounds]]] = {
    "append": of_append,
    "read": of_read,
    "recovery": of_recovery,
    "spark_write": of_spark_write,
    "spark_read": of_spark_read,
}


def main() -> None:
    """Run the requested rounds until standard input ends."""
    script, seconds, root = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    assert ll.__file__.startswith(root), f"{ll.__file__} is not of {root}"
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # other output goes to standard error
        with WORLDS[script](seconds) as rounds:
            print(json.dumps(list(rounds)), file=answers, flush=True)
            for line in sys.stdin:
                print(rounds[line.rstrip("\n")](), file=answers, flush=True)


if __name__ == "__main__":
    main()
