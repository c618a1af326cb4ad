package io.ledgerlog.spark.scan

import org.apache.spark.sql.connector.metric.CustomSumMetric

final class ReadsHedged extends CustomSumMetric {
  override def name(): String = "readsHedged"
  override def description(): String = "slow reads sent to another replica"
}
