"""A micro-batch for the JVM engine: the tasks that the Python stream has planned and pickled.

The process of the stream plans every batch, for both engines. So the choice of the engine changes
neither the rows of a batch nor the errors of a stream.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from pyspark.worker_util import pickleSer

from ledgerlog_spark.datasource.scan.plan import ScanPartition, ScanPlan
from ledgerlog_spark.datasource.scan.planning import PlannedScan
from ledgerlog_spark.datasource.scan.reader import LogPartition
from ledgerlog_spark.errors import WireFormatError


def planned_batch(tasks: Sequence[str]) -> tuple[PlannedScan, bytes]:
    """Return the plan of a batch and the password of its ledgers.

    `tasks` are the tasks of the batch, pickled and in base64.
    """
    partitions = [pickleSer.loads(base64.b64decode(task)) for task in tasks]
    if not partitions or not all(isinstance(each, LogPartition) for each in partitions):
        raise WireFormatError("a task of the micro-batch is not a LogPartition of this package")
    plan = ScanPlan(
        partitions=tuple(ScanPartition(each.task.ranges) for each in partitions),
        versions={},
        ledgers={i: record for each in partitions for i, record in each.task.ledgers.items()},
    )
    scan = PlannedScan(
        plan=plan,
        log_ids={name: i for each in partitions for name, i in each.task.log_ids.items()},
        schemas={key: stored for each in partitions for key, stored in each.task.schemas.items()},
    )
    return scan, partitions[0].password
