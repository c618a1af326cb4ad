package org.apache.spark.sql.ledgerlog

import java.util.OptionalLong

import io.ledgerlog.spark.plan.JvmPlan
import org.apache.spark.sql.connector.read.Statistics
import org.apache.spark.sql.types.StructType

/** The size of a scan, from which Spark chooses joins. */
final class ScanStatistics(size: OptionalLong, rows: OptionalLong) extends Statistics {
  override def sizeInBytes(): OptionalLong = size
  override def numRows(): OptionalLong = rows
}

object ScanStatistics {

  /** Memory of a row in addition to its columns, as Spark's optimizer counts it. */
  private val RowSize = 8L

  val unknown: Statistics = new ScanStatistics(OptionalLong.empty(), OptionalLong.empty())

  /** Stored bytes are compressed, so they may be fewer than the bytes of the rows in memory. A join
    * that broadcasts too many bytes fails, so the larger of the two is the size.
    *
    * @param share
    *   the part of the stored bytes that belongs to the columns
    */
  def of(
      plan: JvmPlan.Planned,
      columns: StructType,
      share: Double,
      limit: Option[Long]
  ): Statistics = {
    val rows = limit.fold(plan.rows)(most => plan.rows.min(most * plan.partitions.size.max(1)))
    val inMemory = rows * (RowSize + columns.defaultSize)
    new ScanStatistics(
      OptionalLong.of(inMemory.max((plan.sizeBytes * share).toLong)),
      OptionalLong.of(rows)
    )
  }
}
