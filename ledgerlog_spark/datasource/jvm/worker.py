"""Answers the requests of the JVM engine in a planner worker of Spark.

Spark starts one daemon for the module `pyspark_ledger`. The daemon's workers call `main` for each
request of a read or of the catalog. A worker keeps its client of the cluster, so a request takes a
few milliseconds.
"""

from __future__ import annotations

import json
from typing import IO

from pyspark.logger.worker_io import capture_outputs
from pyspark.serializers import write_with_length
from pyspark.sql.worker.utils import worker_run
from pyspark.worker_util import pickleSer, read_command, utf8_deserializer

from ledgerlog_spark.datasource.catalog import answers as catalog
from ledgerlog_spark.datasource.jvm import answers as scans


def _main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    source = read_command(pickleSer, infile)
    request = json.loads(utf8_deserializer.loads(infile))
    answer_to = catalog.answer_to if "catalog" in request else scans.answer_to
    with capture_outputs():
        answer = json.dumps(answer_to(source, request), separators=(",", ":"))
    write_with_length(answer.encode(), outfile)


def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Read one request and write its answer, or the exception that the request raised."""
    worker_run(_main, infile, outfile)
