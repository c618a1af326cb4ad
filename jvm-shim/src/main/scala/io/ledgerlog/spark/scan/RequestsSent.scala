package io.ledgerlog.spark.scan

import org.apache.spark.sql.connector.metric.CustomSumMetric

final class RequestsSent extends CustomSumMetric {
  override def name(): String = "requestsSent"
  override def description(): String = "requests to bookies"
}
