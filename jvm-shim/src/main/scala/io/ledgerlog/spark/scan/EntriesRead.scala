package io.ledgerlog.spark.scan

import org.apache.spark.sql.connector.metric.CustomSumMetric

final class EntriesRead extends CustomSumMetric {
  override def name(): String = "entriesRead"
  override def description(): String = "entries read"
}
