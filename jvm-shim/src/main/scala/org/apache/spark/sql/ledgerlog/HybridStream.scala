package org.apache.spark.sql.ledgerlog

import java.util
import java.util.Optional

import io.ledgerlog.spark.plan.JvmPlan
import io.ledgerlog.spark.scan.LedgerBatch
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{
  MicroBatchStream,
  Offset,
  ReadLimit,
  ReportsSourceMetrics,
  SupportsTriggerAvailableNow
}
import org.apache.spark.sql.types.StructType

/** The stream of the Python source, whose micro-batches this engine reads if it can.
  *
  * Offsets, limits, and the plan of a batch are those of the Python stream. So both engines have
  * the same errors, and either engine can continue from a checkpoint of the other.
  */
final class HybridStream(
    python: MicroBatchStream with SupportsTriggerAvailableNow,
    planner: ScanPlanner,
    columns: StructType
) extends MicroBatchStream
    with SupportsTriggerAvailableNow
    with ReportsSourceMetrics {

  /** The input of the last batch. It is kept, because Spark may ask for it several times. */
  private var planned: Option[((String, String), Array[InputPartition])] = None
  @volatile private var lag: util.Map[String, String] = util.Map.of()
  @volatile private var lastEngine = "JVM engine"

  private lazy val factory = new HybridReaderFactory(python.createReaderFactory())

  /** The engine of the last batch; for Python, with the reason. */
  def engine: String = lastEngine

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = {
    val offsets = (start.json(), end.json())
    planned.filter(_._1 == offsets).map(_._2).getOrElse {
      val partitions = columnar(python.planInputPartitions(start, end))
      planned = Some((offsets, partitions))
      partitions
    }
  }

  /** The same tasks for this engine, or for Python if a task needs Python. */
  private def columnar(partitions: Array[InputPartition]): Array[InputPartition] = {
    val tasks = partitions.toSeq.flatMap(PythonSource.taskOf)
    if (partitions.isEmpty || tasks.size < partitions.length) partitions
    else
      planner.batch(columns, tasks) match {
        case here: JvmPlan.Planned =>
          lastEngine = "JVM engine"
          new LedgerBatch(here, columns, None).planInputPartitions()
        case JvmPlan.Delegated(reason, _) =>
          lastEngine = s"Python engine ($reason)"
          partitions
        case other => throw new IllegalStateException(s"the planner answered $other to a batch")
      }
  }

  override def createReaderFactory(): PartitionReaderFactory = factory

  override def metrics(latestConsumedOffset: Optional[Offset]): util.Map[String, String] = lag

  override def reportLatestOffset(): Offset = {
    val report = python.reportLatestOffset()
    lag = if (report == null) util.Map.of() else StreamLag.of(report.json())
    report
  }

  override def initialOffset(): Offset = python.initialOffset()
  override def latestOffset(): Offset = python.latestOffset()
  override def latestOffset(start: Offset, limit: ReadLimit): Offset =
    python.latestOffset(start, limit)
  override def getDefaultReadLimit: ReadLimit = python.getDefaultReadLimit
  override def prepareForTriggerAvailableNow(): Unit = python.prepareForTriggerAvailableNow()
  override def deserializeOffset(json: String): Offset = python.deserializeOffset(json)

  override def commit(end: Offset): Unit = {
    planned = None
    python.commit(end)
  }

  override def stop(): Unit = python.stop()

  /** The description of the source in the progress of a query. */
  override def toString: String = s"ledger ${planner.subject}, $engine"
}
