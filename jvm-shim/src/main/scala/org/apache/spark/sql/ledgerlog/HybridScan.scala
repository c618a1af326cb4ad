package org.apache.spark.sql.ledgerlog

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.plan.{JvmPlan, ScanRange}
import io.ledgerlog.spark.scan.{LedgerBatch, ScanMetrics}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{Batch, Scan, Statistics, SupportsReportStatistics}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, SupportsTriggerAvailableNow}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** One scan. A batch scan is planned once, when Spark first needs its size or its tasks. */
final class HybridScan(
    planner: ScanPlanner,
    streamPlanner: ScanPlanner,
    columns: StructType,
    options: CaseInsensitiveStringMap,
    filters: Seq[Predicate],
    top: Option[TopRequest],
    limit: Option[Long]
) extends SupportsReportStatistics {
  private var isStream = false
  private var stream: Option[HybridStream] = None

  private lazy val planned: JvmPlan = planner.plan(columns, filters, top)
  private lazy val plan: Either[Scan, JvmPlan.Planned] = planned match {
    case here: JvmPlan.Planned => Right(here)
    case JvmPlan.Delegated(_, asked) =>
      val forPython = new CaseInsensitiveStringMap(asked.asJava)
      Left(PythonSource.scanBuilder(columns, forPython).build())
    case other => throw new IllegalStateException(s"the planner answered $other to a scan")
  }
  private lazy val streaming: Scan = {
    val read = streamPlanner.withHiddenColumns(columns, options)
    PythonSource.scanBuilder(streamPlanner.withTableOptions(columns), read).build()
  }
  private lazy val batch: Batch = plan.fold(_.toBatch(), new LedgerBatch(_, columns, limit))

  override def readSchema(): StructType = columns

  override def toBatch(): Batch = batch

  override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream = {
    isStream = true
    streaming.toMicroBatchStream(checkpointLocation) match {
      case python: MicroBatchStream with SupportsTriggerAvailableNow =>
        val made = new HybridStream(python, streamPlanner, columns)
        stream = Some(made)
        made
      case other => other
    }
  }

  override def columnarSupportMode(): Scan.ColumnarSupportMode =
    if (isStream) Scan.ColumnarSupportMode.PARTITION_DEFINED
    else plan.fold(_.columnarSupportMode(), _ => Scan.ColumnarSupportMode.SUPPORTED)

  override def estimateStatistics(): Statistics =
    if (isStream) ScanStatistics.unknown
    else
      plan.fold(
        _ => ScanStatistics.unknown,
        ScanStatistics.of(_, columns, planner.shareOf(columns), limit)
      )

  override def supportedCustomMetrics(): Array[CustomMetric] =
    if (isStream) streaming.supportedCustomMetrics() ++ ScanMetrics.all
    else plan.fold(_.supportedCustomMetrics(), _ => ScanMetrics.all)

  override def reportDriverMetrics(): Array[CustomTaskMetric] =
    if (isStream) streaming.reportDriverMetrics()
    else plan.fold(_.reportDriverMetrics(), _ => Array.empty)

  override def description(): String = s"ledger ${planner.subject}, $engine"

  private def engine: String =
    if (isStream) stream.fold("Python engine")(_.engine)
    else
      planned match {
        case JvmPlan.Delegated(reason, _) => s"Python engine ($reason)"
        case here: JvmPlan.Planned => s"JVM engine: ${textOf(here)}"
        case other => other.toString
      }

  private def textOf(here: JvmPlan.Planned): String = {
    val leaders = here.partitions.flatten.filter(_.form != ScanRange.ArrowStream).map(_.log).toSet
    val versions = here.logs.map { case (log, version) =>
      if (leaders(log)) log else s"$log version $version"
    }
    val ranges = here.partitions.map(_.size).sum
    val rows = limit.fold(s"${here.rows} rows")(most => s"at most $most rows of a task")
    val chosen = (filters.map(_.toString) ++ top.map(_.toString)).mkString(" AND ")
    val used = if (chosen.isEmpty) "" else s", chosen by ${chosen.take(HybridScan.TextMax)}"
    s"${versions.mkString(", ")}, $ranges ranges in ${here.partitions.size} tasks, $rows$used"
  }
}

private object HybridScan {

  /** Characters of filters in the description of a plan: a list of `IN` may be very long. */
  val TextMax = 500
}
