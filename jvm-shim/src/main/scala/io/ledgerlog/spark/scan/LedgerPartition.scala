package io.ledgerlog.spark.scan

import io.ledgerlog.spark.plan.{
  BookieAddress,
  LedgerRecord,
  ScanRange,
  ServiceAddress,
  StoredSchema
}
import org.apache.spark.sql.connector.read.InputPartition
import org.apache.spark.sql.types.StructType

/** The input of one task, with all that it needs. `toString` never shows the password.
  *
  * @param target
  *   the columns of the scan
  * @param limit
  *   the task may end after so many rows
  */
final class LedgerPartition(
    val ranges: Seq[ScanRange],
    val ledgers: Map[Long, LedgerRecord],
    val bookies: Map[String, BookieAddress],
    val schemas: Seq[StoredSchema],
    val service: ServiceAddress,
    val password: Array[Byte],
    val failOnDataLoss: Boolean,
    val target: StructType,
    val limit: Option[Long]
) extends InputPartition
