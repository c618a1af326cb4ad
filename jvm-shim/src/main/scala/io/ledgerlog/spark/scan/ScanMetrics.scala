package io.ledgerlog.spark.scan

import io.ledgerlog.spark.read.ReadMetrics
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}

/** The metrics of a scan in Spark's user interface. */
object ScanMetrics {
  val all: Array[CustomMetric] =
    Array(
      new EntriesRead,
      new BytesRead,
      new EntriesFiltered,
      new RequestsSent,
      new ReplicasTried,
      new ReadsRetried,
      new ReadsHedged,
      new SlicesGivenUp
    )

  def valuesOf(metrics: ReadMetrics): Array[CustomTaskMetric] = Array(
    value("entriesRead", metrics.entries),
    value("payloadBytesRead", metrics.bytes),
    value("entriesFiltered", metrics.filtered),
    value("requestsSent", metrics.requests),
    value("replicasTried", metrics.replicas.size.toLong),
    value("readsRetried", metrics.retries),
    value("readsHedged", metrics.hedges),
    value("slicesGivenUp", metrics.slicesGivenUp)
  )

  private def value(metric: String, amount: Long): CustomTaskMetric = new CustomTaskMetric {
    override def name(): String = metric
    override def value(): Long = amount
  }
}
