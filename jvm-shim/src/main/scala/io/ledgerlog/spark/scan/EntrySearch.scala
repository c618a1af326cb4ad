package io.ledgerlog.spark.scan

import scala.collection.mutable

import io.ledgerlog.spark.plan.ScanRange
import io.ledgerlog.spark.wire.LeaderHeader

/** Finds the entries with the wanted rows in a range of a leader log. It reads only a few headers.
  *
  * It does the same as `entries_between` in `ledgerlog_spark/datasource/scan/ranges.py`.
  *
  * @param header
  *   reads the header of an entry; it is called at most once for each entry
  */
final class EntrySearch(range: ScanRange, header: Long => LeaderHeader) {
  private val seen = mutable.Map.empty[Long, LeaderHeader]

  /** The part of the range with all its wanted rows; None if it has no wanted row. */
  def needed(): Option[ScanRange] = {
    val (first, firstHeader) = find(range.startOffset)
    val (at, lastHeader) = find(range.endOffset - 1)
    val last = if (lastHeader.isEmpty) at - 1 else at
    val rows =
      for (from <- firstHeader; to <- lastHeader)
        yield (from.firstOffset - range.rangeOffset, to.endOffset - range.rangeOffset)
    if (last < first) None
    else
      Some(
        range.copy(
          firstEntryId = first,
          lastEntryId = last,
          entryRows = rows,
          isSearched = false
        )
      )
  }

  /** The entry that has a row, and its header. If none has the row, the first entry after it. */
  private def find(offset: Long): (Long, Option[LeaderHeader]) = {
    var (low, end) = (range.firstEntryId, range.lastEntryId + 1)
    val edges = range.entryRows.map { case (from, until) =>
      (range.rangeOffset + from, range.rangeOffset + until)
    }
    var (lowOffset, endOffset) = (edges.map(_._1), edges.map(_._2))
    var guesses = true
    while (low < end) {
      val guess = for (from <- lowOffset; until <- endOffset if guesses) yield {
        val share = BigInt(offset - from) * (end - low) / Math.max(1, until - from)
        (share + low).max(low).min(end - 1).toLong
      }
      val entryId = guess.getOrElse((low + end) / 2)
      guesses = !guesses
      val found = seen.getOrElseUpdate(entryId, header(entryId))
      if (found.firstOffset > offset) {
        end = entryId
        endOffset = Some(found.firstOffset)
      } else if (found.endOffset <= offset) {
        low = entryId + 1
        lowOffset = Some(found.endOffset)
      } else return (entryId, Some(found))
    }
    (low, None)
  }
}
