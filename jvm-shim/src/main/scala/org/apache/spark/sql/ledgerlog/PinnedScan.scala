package org.apache.spark.sql.ledgerlog

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{Batch, Scan}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A scan in the Python source. A batch reads one version, and a stream cannot select a version. */
final class PinnedScan(
    columns: StructType,
    options: CaseInsensitiveStringMap,
    streamOptions: CaseInsensitiveStringMap
) extends Scan {
  private var isStream = false
  private lazy val batch = PythonSource.scanBuilder(columns, options).build()
  private lazy val stream = PythonSource.scanBuilder(columns, streamOptions).build()

  override def readSchema(): StructType = columns
  override def toBatch(): Batch = batch.toBatch()
  override def toMicroBatchStream(checkpointLocation: String): MicroBatchStream = {
    isStream = true
    stream.toMicroBatchStream(checkpointLocation)
  }
  override def columnarSupportMode(): Scan.ColumnarSupportMode =
    Scan.ColumnarSupportMode.UNSUPPORTED
  override def supportedCustomMetrics(): Array[CustomMetric] = chosen.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = chosen.reportDriverMetrics()
  override def description(): String = s"ledger ${options.get("log")}, Python engine (as chosen)"

  private def chosen: Scan = if (isStream) stream else batch
}
