package org.apache.spark.sql.ledgerlog

import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.write.{BatchWrite, Write}
import org.apache.spark.sql.connector.write.streaming.StreamingWrite

/** A write to one log by the Python source. Batches and streams have different options. */
final class CatalogWrite(subject: String, newBatch: () => Write, newStream: () => Write)
    extends Write {
  private lazy val batch = newBatch()

  override def description(): String = s"ledger $subject"
  override def toBatch(): BatchWrite = batch.toBatch
  override def toStreaming(): StreamingWrite = newStream().toStreaming
  override def supportedCustomMetrics(): Array[CustomMetric] = batch.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = batch.reportDriverMetrics()
}
