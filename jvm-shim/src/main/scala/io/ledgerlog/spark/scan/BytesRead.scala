package io.ledgerlog.spark.scan

import org.apache.spark.sql.connector.metric.CustomSumMetric

final class BytesRead extends CustomSumMetric {
  override def name(): String = "payloadBytesRead"
  override def description(): String = "payload bytes read"
}
