package io.ledgerlog.spark.arrow

import java.nio.ByteBuffer
import java.util.Base64

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.{PlanJson, ScanRange}
import io.ledgerlog.spark.wire.{EntrySlices, Frames}
import org.slf4j.LoggerFactory

/** The index of one listed range: for each entry, the rows and the payload bytes before it.
  *
  * It does the same as `RangeIndex` in `ledgerlog_spark/datasource/scan/ranges.py`.
  *
  * @param slices
  *   for each entry the length and the CRC32C of each slice; none if the index does not list them
  */
final case class RangeIndex(
    firstEntryId: Long,
    rowEdges: IndexedSeq[Long],
    byteEdges: IndexedSeq[Long],
    slices: IndexedSeq[Array[Int]] = IndexedSeq.empty
) {

  /** The slices of `columns` of the stored schema, for the entries of `range`.
    *
    * The result is None if the index has no slices of this schema, or if whole entries are better.
    */
  def slicesOf(range: ScanRange, columns: Seq[Int], storedColumns: Int): Option[EntrySlices] =
    listed(range, columns, storedColumns).filter(_.isWorthwhile)

  /** The slices of a filter's columns, if it saves time to read them before the other columns.
    *
    * @param wanted
    *   the places of all columns that the scan needs
    */
  def slicesBefore(
      range: ScanRange,
      columns: Seq[Int],
      wanted: Seq[Int],
      storedColumns: Int
  ): Option[EntrySlices] =
    listed(range, columns, storedColumns).filter { first =>
      val next = slicesOf(range, wanted, storedColumns).fold(first.wholeBytes)(_.sizeBytes)
      first.areWorthwhileBefore(next)
    }

  private def listed(
      range: ScanRange,
      columns: Seq[Int],
      storedColumns: Int
  ): Option[EntrySlices] = {
    val from = range.firstEntryId - firstEntryId
    val until = range.lastEntryId + 1 - firstEntryId
    val isListed = from >= 0 && until <= slices.size && from < until
    if (!isListed || slices.head.length != 2 * (1 + storedColumns)) None
    else {
      val part = slices.slice(from.toInt, until.toInt)
      Some(new EntrySlices(range.firstEntryId, part, columns))
    }
  }

  /** The part of a range with all its wanted rows; None if it has no wanted row. */
  def needed(range: ScanRange): Option[ScanRange] = {
    val entries = rowEdges.size - 1
    val first = range.firstEntryId - firstEntryId
    val end = range.lastEntryId + 1 - firstEntryId
    if (first < 0 || first >= end || end > entries)
      throw LedgerLogException.wireFormat(
        s"the index of entries $firstEntryId to ${firstEntryId + entries - 1} of ledger " +
          s"${range.ledgerId} does not cover entries ${range.firstEntryId} to " +
          s"${range.lastEntryId}, which log '${range.log}' lists"
      )
    val startRow = range.startOffset - range.rangeOffset
    val endRow = range.endOffset - range.rangeOffset
    val from = Math.max(first.toInt, rowEdges.lastIndexWhere(_ <= startRow))
    val until = Math.min(
      end.toInt,
      rowEdges.indexWhere(_ >= endRow) match {
        case -1 => entries
        case place => place
      }
    )
    if (from >= until) None
    else {
      val rows = (rowEdges(from), rowEdges(until))
      Some(
        range.copy(
          firstEntryId = firstEntryId + from,
          lastEntryId = firstEntryId + until - 1,
          rows = Math.max(0, Math.min(rows._2, endRow) - Math.max(rows._1, startRow)),
          sizeBytes = byteEdges(until) - byteEdges(from),
          indexEntryId = ScanRange.NoEntry,
          entryRows = Some(rows)
        )
      )
    }
  }
}

object RangeIndex {
  private val Log = LoggerFactory.getLogger(classOf[RangeIndex])
  private val Format = 1
  private val ColumnsMin = 2

  /** The index in the custom metadata of an index entry. */
  def decode(indexEntryId: Long, text: String): RangeIndex =
    try {
      val index = PlanJson.parse(text)
      val format = index.get("format").asInt
      if (format != Format)
        throw LedgerLogException.wireFormat(s"an index of format $format; this version reads 1")
      val rows = index.get("rows").elements.asScala.map(_.asLong).toVector
      val bytes = index.get("bytes").elements.asScala.map(_.asLong).toVector
      if (rows.isEmpty || rows.size > indexEntryId || rows.exists(_ < 1) || bytes.size != rows.size)
        throw LedgerLogException.wireFormat(
          s"index entry $indexEntryId is not that of a range: it describes ${rows.size} entries"
        )
      RangeIndex(
        indexEntryId - rows.size,
        rows.scanLeft(0L)(_ + _),
        bytes.scanLeft(0L)(_ + _),
        Option(index.get("slices")).fold(IndexedSeq.empty[Array[Int]])(text =>
          usableSlices(text.asText, bytes)
        )
      )
    } catch {
      case error: LedgerLogException => throw error
      case NonFatal(error) =>
        throw LedgerLogException.wireFormat(s"not the index of a range: ${error.getMessage}", error)
    }

  /** The slices of each entry; none if they are wrong, because whole entries can be read too. */
  private def usableSlices(text: String, sizes: IndexedSeq[Long]): IndexedSeq[Array[Int]] =
    try slicesIn(Base64.getDecoder.decode(text), sizes)
    catch {
      case NonFatal(error) =>
        Log.warn("slices in an index are not valid, entries are read whole: {}", error.getMessage)
        IndexedSeq.empty
    }

  private def slicesIn(joined: Array[Byte], sizes: IndexedSeq[Long]): IndexedSeq[Array[Int]] = {
    val each = joined.length / 8 / sizes.size
    if (joined.length != each * sizes.size * 8 || each < 1 + ColumnsMin)
      throw LedgerLogException.wireFormat(
        s"${joined.length} bytes are not the slices of ${sizes.size} entries"
      )
    val numbers = ByteBuffer.wrap(joined).asIntBuffer()
    sizes.map { size =>
      val entry = Array.fill(2 * each)(numbers.get())
      val lengths = entry.indices.by(2).map(entry)
      // No stored entry is larger than a frame, and each begins with a header.
      val areWhole = lengths.head > 0 && !lengths.exists(_ < 0) && size <= Frames.FrameSizeMax &&
        lengths.map(_.toLong).sum == size
      if (!areWhole)
        throw LedgerLogException.wireFormat(s"the slices of an entry are not its $size bytes")
      entry
    }
  }
}
