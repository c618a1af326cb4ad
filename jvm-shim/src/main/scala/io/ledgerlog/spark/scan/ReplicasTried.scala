package io.ledgerlog.spark.scan

import org.apache.spark.sql.connector.metric.CustomSumMetric

final class ReplicasTried extends CustomSumMetric {
  override def name(): String = "replicasTried"
  override def description(): String = "bookies that tasks sent requests to"
}
