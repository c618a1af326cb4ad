"""Compares the logs at the end: `python -m tests.exactly_once.compare URI ROWS`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.exactly_once.query import COPY, COUNTS, INPUT, session


@dataclass(frozen=True, slots=True)
class Comparison:
    """Numbers of rows. All except the first two must be 0."""

    rows_in: int
    rows_out: int
    lost: int
    duplicated: int
    changed: int
    out_of_order: int
    counts_wrong: int

    @property
    def is_exact(self) -> bool:
        """Whether output equals input."""
        wrong = (self.lost, self.duplicated, self.changed, self.out_of_order, self.counts_wrong)
        return self.rows_in == self.rows_out and not any(wrong)


def compare(spark: SparkSession, rows: int) -> Comparison:
    """Compare the copy and the counts with the rows that were fed, 0 to `rows` - 1."""
    reader = spark.read.format("ledger").option("includeMetadata", "true")
    fed, copied = reader.load(INPUT), reader.load(COPY).cache()
    per_row = copied.groupBy("seq").count()
    expected = spark.range(rows).select(f.col("id").alias("seq"))
    wanted_text = f.concat(f.lit("row "), f.col("seq"))
    right = spark.range(rows).select((f.col("id") % 17).alias("key"), f.col("id").alias("seq"))
    right = right.groupBy("key").agg(f.count("*"), f.sum("seq"), f.max("seq"))
    counts = spark.read.format("ledger").load(COUNTS)
    wrong = counts.exceptAll(right).count() + right.exceptAll(counts).count()
    return Comparison(
        rows_in=fed.count(),
        rows_out=copied.count(),
        lost=expected.join(per_row, "seq", "left_anti").count(),
        duplicated=per_row.where("count > 1").count(),
        changed=copied.where(f.col("text") != wanted_text).count(),
        # Rows were fed in order, and a copy keeps the order of its source's partitions.
        out_of_order=copied.where("seq != _offset").count(),
        counts_wrong=wrong,
    )


def main() -> int:
    """Print the comparison as JSON."""
    result = compare(session(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(asdict(result)), flush=True)
    return 0 if result.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
