package io.ledgerlog.spark.plan

import com.fasterxml.jackson.databind.JsonNode

/** The answer of the Python planner to one scan. */
sealed trait JvmPlan

object JvmPlan {

  /** The Python source has to run the scan, with these options. */
  final case class Delegated(reason: String, options: Map[String, String]) extends JvmPlan

  /** Values over all rows of a scan; empty if only a scan can compute them. */
  final case class Aggregated(values: Option[Seq[JsonNode]]) extends JvmPlan

  /** A scan for this engine.
    *
    * @param logs
    *   the names of the logs, with the versions that the scan reads
    * @param ledgers
    *   metadata of ledgers that the planner has read; tasks read the rest
    */
  final case class Planned(
      logs: Seq[(String, Long)],
      partitions: Seq[Seq[ScanRange]],
      ledgers: Map[Long, LedgerRecord],
      bookies: Map[String, BookieAddress],
      schemas: Seq[StoredSchema],
      service: ServiceAddress,
      password: Array[Byte],
      failOnDataLoss: Boolean
  ) extends JvmPlan {
    def rows: Long = partitions.flatten.map(_.rows).sum
    def sizeBytes: Long = partitions.flatten.map(_.sizeBytes).sum
  }
}
