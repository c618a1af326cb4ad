package io.ledgerlog.spark.wire

import java.nio.ByteBuffer
import java.util.zip.CRC32C

import io.ledgerlog.spark.LedgerLogException

/** The slices of a range's entries. A reader requests some of these slices (LOGS.md#G14).
  *
  * Slice 0 of an entry is the header of its record batch, and slice `n + 1` is column `n`. The
  * class does the same as `RequestedSlices` in `ledgerlog_spark/arrow/column_slices.py`. Several
  * threads may use one object.
  *
  * @param entries
  *   for each entry the length and the CRC32C of each slice, alternately. An entry has at least one
  *   byte in its header, and at most as many bytes as a frame.
  * @param columns
  *   the places of the requested columns, which all entries have
  */
final class EntrySlices(firstEntryId: Long, entries: IndexedSeq[Array[Int]], columns: Seq[Int]) {
  private val wanted: Array[Int] = (0 +: columns.distinct.sorted.map(_ + 1)).toArray

  /** Whether the columns have so few of the bytes that whole entries take longer to read. */
  def isWorthwhile: Boolean = isAllowed && sizeBytes < wholeBytes * EntrySlices.NeededShareMax

  /** Whether few enough bytes are requested to choose, by their values, entries to read again.
    *
    * @param next
    *   the bytes of a read of all these entries, if none is left out
    */
  def areWorthwhileBefore(next: Long): Boolean =
    isAllowed && sizeBytes <= next * EntrySlices.FirstShareMax &&
      next - sizeBytes >= entries.size * EntrySlices.LeftOutBytesMin

  /** The number of requested bytes of all entries. */
  def sizeBytes: Long = entries.iterator.map(sizeIn(_).toLong).sum

  /** The number of bytes of all entries. */
  def wholeBytes: Long =
    entries.iterator.map(entry => startsOf(entry, firstSlice = 0).last.toLong).sum

  private def isAllowed: Boolean = wanted.length <= EntrySlices.RangesMax

  /** The requested bytes of an entry's payload, rising. No range is empty. */
  def rangesOf(entryId: Long): IndexedSeq[StoredSlice] = {
    val entry = entryOf(entryId)
    val starts = startsOf(entry, firstSlice = 0)
    wanted.foldLeft(Vector.empty[StoredSlice]) { (ranges, slice) =>
      val (start, length) = (starts(slice), lengthIn(entry, slice))
      ranges.lastOption match {
        case Some(last) if last.place + last.size == start =>
          ranges.init :+ StoredSlice(last.place, last.size + length)
        case _ if length == 0 => ranges
        case _ => ranges :+ StoredSlice(start, length)
      }
    }
  }

  /** The number of requested bytes of an entry. */
  def sizeOf(entryId: Long): Int = sizeIn(entryOf(entryId))

  /** Whether the bytes in `received` are the requested slices of an entry. */
  def isValid(entryId: Long, bytes: ByteBuffer, received: StoredSlice, sum: CRC32C): Boolean = {
    val entry = entryOf(entryId)
    var place = received.place
    received.size == sizeIn(entry) && wanted.forall { slice =>
      val length = lengthIn(entry, slice)
      sum.reset()
      sum.update(bytes.slice(place, length))
      place += length
      sum.getValue.toInt == entry(2 * slice + 1)
    }
  }

  /** The body of the record batch that the requested slices of an entry make. */
  def bodyOf(entryId: Long): SlicedBody = {
    val entry = entryOf(entryId)
    val starts = startsOf(entry, firstSlice = 1)
    val isKept = new Array[Boolean](starts.length - 1)
    wanted.drop(1).foreach(slice => isKept(slice - 1) = true)
    val keptStarts = isKept.indices.scanLeft(0) { (start, column) =>
      if (isKept(column)) start + starts(column + 1) - starts(column) else start
    }
    SlicedBody(starts.toIndexedSeq, isKept.toIndexedSeq, keptStarts)
  }

  private def entryOf(entryId: Long): Array[Int] = {
    val place = entryId - firstEntryId
    if (place < 0 || place >= entries.size)
      throw LedgerLogException.wireFormat(s"the index of a range does not describe entry $entryId")
    entries(place.toInt)
  }

  /** Where each slice from `firstSlice` on begins, counted from the first of them, and the end. */
  private def startsOf(entry: Array[Int], firstSlice: Int): Array[Int] =
    (firstSlice until entry.length / 2).scanLeft(0)(_ + lengthIn(entry, _)).toArray

  private def sizeIn(entry: Array[Int]): Int = wanted.iterator.map(lengthIn(entry, _)).sum

  private def lengthIn(entry: Array[Int], slice: Int): Int = entry(2 * slice)
}

object EntrySlices {

  /** Limits of one request (WIRE.md#read_slices). */
  val RangesMax: Int = 8192
  val EntriesMax: Int = 1024

  private val NeededShareMax = 0.6

  /** A filter is read first if its columns have at most this share of the bytes that a scan needs.
    * Then it pays if three of four entries have a row, and more entries end these reads.
    */
  private val FirstShareMax = 0.25

  /** Bytes of an entry for which a request of its own is worthwhile, on the average. */
  private val LeftOutBytesMin = 64L << 10
}
