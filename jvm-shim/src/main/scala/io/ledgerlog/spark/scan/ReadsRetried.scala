package io.ledgerlog.spark.scan

import org.apache.spark.sql.connector.metric.CustomSumMetric

final class ReadsRetried extends CustomSumMetric {
  override def name(): String = "readsRetried"
  override def description(): String = "reads retried on another replica"
}
