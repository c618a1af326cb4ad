"""The amounts that the tasks of a query's scans read, from Spark's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collected(frame: DataFrame) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """The rows of a query in order, and the sums of the metrics of its scans."""
    execution = frame._jdf.queryExecution()
    rows = sorted(map(tuple, frame.collect()), key=repr)
    return rows, _metrics_of(execution.executedPlan())


def _metrics_of(plan: Any) -> dict[str, int]:
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        return _metrics_of(plan.finalPhysicalPlan())
    if plan.getClass().getSimpleName().endswith("QueryStageExec"):
        return _metrics_of(plan.plan())
    found: dict[str, int] = {}
    if plan.getClass().getSimpleName() == "BatchScanExec":
        metrics = plan.metrics().iterator()
        while metrics.hasNext():
            pair = metrics.next()
            found[pair._1()] = pair._2().value()
    children = plan.children().iterator()
    while children.hasNext():
        for name, value in _metrics_of(children.next()).items():
            found[name] = found.get(name, 0) + value
    return found
