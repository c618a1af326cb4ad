package io.ledgerlog.spark.read

/** What the reader of a task did. */
final class ReadMetrics {
  var entries: Long = 0
  var bytes: Long = 0
  var requests: Long = 0
  var retries: Long = 0
  var hedges: Long = 0
}
