package io.ledgerlog.spark.read

import scala.collection.mutable

/** The counts of the reader of a task. */
final class ReadMetrics {

  /** The bookies that the task sent requests to. */
  val replicas: mutable.Set[String] = mutable.Set.empty
  var entries: Long = 0

  /** The entries of which only the columns of the filter were read. */
  var filtered: Long = 0
  var bytes: Long = 0
  var requests: Long = 0
  var retries: Long = 0
  var hedges: Long = 0

  /** Requests for slices that no bookie answered, so that entries were read whole. */
  var slicesGivenUp: Long = 0
}
