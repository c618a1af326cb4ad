package io.ledgerlog.spark.arrow

import org.apache.spark.sql.types.TimestampType

/** The column `_append_time`: the times at which consecutive rows were committed or appended.
  *
  * @param first
  *   the offset of the first row
  * @param times
  *   for each commit, ascending, the offset after its last row and its time in ms, if it is known
  */
final class CommitTimeColumn(first: Long, times: IndexedSeq[(Long, Option[Long])])
    extends LongColumn(TimestampType) {

  override def hasNull: Boolean = times.isEmpty || times.exists(_._2.isEmpty)
  override def isNullAt(row: Int): Boolean = timeOf(row).isEmpty
  override def getLong(row: Int): Long = timeOf(row).fold(0L)(_ * 1000)

  private def timeOf(row: Int): Option[Long] =
    times.find { case (end, _) => first + row < end }.flatMap(_._2)
}
