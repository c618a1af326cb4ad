package io.ledgerlog.spark.wire

import java.nio.ByteBuffer
import java.util.zip.CRC32C

import io.ledgerlog.spark.LedgerLogException

/** The slices of a range's entries, of which a reader requests some (LOGS.md#G14).
  *
  * Slice 0 of an entry is the header of its record batch, and slice `n + 1` is column `n`. As
  * `RequestedSlices` in `ledgerlog_spark/arrow/column_slices.py`. One object must not be used by
  * several threads at the same time, except `isValid` with different sums.
  *
  * @param entries
  *   for each entry the length and the CRC32C of each slice, alternately
  * @param columns
  *   the places of the requested columns
  */
final class EntrySlices(firstEntryId: Long, entries: IndexedSeq[Array[Int]], columns: Seq[Int]) {
  private val wanted: IndexedSeq[Int] = 0 +: columns.distinct.sorted.map(_ + 1).toIndexedSeq

  /** Whether the columns have so few of the bytes that whole entries take longer to read. */
  def isWorthwhile: Boolean = {
    val isKnown = wanted.last < entries.head.length / 2
    isKnown && wanted.size <= EntrySlices.RangesMax && {
      val needed = entries.iterator.map(entry => wanted.map(lengthIn(entry, _).toLong).sum).sum
      val all = entries.iterator.map(entry => slicesOf(entry).map(lengthIn(entry, _).toLong).sum).sum
      needed < all * EntrySlices.NeededShareMax
    }
  }

  /** The requested bytes of an entry's payload, rising. No range is empty. */
  def rangesOf(entryId: Long): IndexedSeq[StoredSlice] = {
    val entry = entryOf(entryId)
    val starts = slicesOf(entry).scanLeft(0)((start, slice) => start + lengthIn(entry, slice))
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
  def sizeOf(entryId: Long): Int = {
    val entry = entryOf(entryId)
    wanted.map(lengthIn(entry, _)).sum
  }

  /** Whether the bytes in `received` are the requested slices of an entry. */
  def isValid(entryId: Long, bytes: ByteBuffer, received: StoredSlice, sum: CRC32C): Boolean = {
    val entry = entryOf(entryId)
    var place = received.place
    received.size == sizeOf(entryId) && wanted.forall { slice =>
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
    val lengths = slicesOf(entry).drop(1).map(lengthIn(entry, _))
    val isWanted = wanted.drop(1).map(_ - 1).toSet
    SlicedBody(
      lengths.scanLeft(0)(_ + _),
      lengths.indices.map(isWanted),
      lengths.indices.scanLeft(0)((start, n) => if (isWanted(n)) start + lengths(n) else start)
    )
  }

  private def entryOf(entryId: Long): Array[Int] = {
    val place = entryId - firstEntryId
    if (place < 0 || place >= entries.size)
      throw LedgerLogException.wireFormat(s"the index of a range does not describe entry $entryId")
    entries(place.toInt)
  }

  private def slicesOf(entry: Array[Int]): IndexedSeq[Int] = 0 until entry.length / 2

  private def lengthIn(entry: Array[Int], slice: Int): Int = entry(2 * slice)
}

object EntrySlices {

  /** Limits of one request (WIRE.md#read_slices). */
  val RangesMax: Int = 8192
  val EntriesMax: Int = 1024

  private val NeededShareMax = 0.6
}
