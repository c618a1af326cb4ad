package io.ledgerlog.spark.scan

import org.apache.spark.sql.connector.metric.CustomSumMetric

final class SlicesGivenUp extends CustomSumMetric {
  override def name(): String = "slicesGivenUp"
  override def description(): String = "requests for slices that became reads of whole entries"
}
