package io.ledgerlog.spark.scan

import org.apache.spark.sql.connector.metric.CustomSumMetric

final class EntriesFiltered extends CustomSumMetric {
  override def name(): String = "entriesFiltered"
  override def description(): String = "entries of which only the filter's columns were read"
}
