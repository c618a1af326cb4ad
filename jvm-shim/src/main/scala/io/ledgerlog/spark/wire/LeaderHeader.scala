package io.ledgerlog.spark.wire

import java.nio.ByteBuffer

import io.ledgerlog.spark.LedgerLogException

/** The header of an entry of a leader log (LOGS.md#G10).
  *
  * It has the fields of `LeaderEntryHeader` in `ledgerlog_spark/protocol/leader/entry.py`.
  *
  * @param count
  *   the number of records or rows
  * @param bodySize
  *   the size of the body before compression
  */
final case class LeaderHeader(
    codec: LeaderCodec,
    firstOffset: Long,
    appendTimeMs: Long,
    count: Int,
    bodySize: Int
) {

  /** The offset after the last record or row. */
  def endOffset: Long = firstOffset + count
}

object LeaderHeader {
  val Size: Int = 28

  /** Maximum size of a body before compression. */
  val BodySizeMax: Int = 16 << 20

  /** The size of a length of a record, in a body. */
  val LengthSize: Int = 4

  private val Magic: Short = 0x4c45 // "LE"
  private val Format: Byte = 1

  /** Decode the header of a whole entry, and check the size of its body, unless it is compressed. */
  def decode(entry: ByteBuffer): LeaderHeader = {
    val size = entry.remaining()
    val head = entry.duplicate()
    if (size < Size || head.getShort() != Magic)
      throw LedgerLogException.wireFormat(s"these $size bytes are not an entry of a leader log")
    val format = head.get()
    if (format != Format)
      throw LedgerLogException.metadataFormat(
        s"an entry of a leader log has format $format, but this version reads only format " +
          s"$Format: use the version of ledgerlog that wrote it, or a later version"
      )
    val codec = LeaderCodec.ofNumber(head.get())
    val (firstOffset, timeMs, count) = (head.getLong(), head.getLong(), head.getInt())
    val bodySize = head.getInt() & 0xffffffffL
    def wrong(what: String): LedgerLogException =
      LedgerLogException.wireFormat(s"an entry of a leader log cannot have $what")
    if (count < 1) throw wrong(s"$count records")
    if (firstOffset < 0 || firstOffset > Long.MaxValue - count) throw wrong(s"offset $firstOffset")
    if (timeMs < 0) throw wrong(s"append time $timeMs")
    val lengths = if (codec == LeaderCodec.Arrow) 0L else count.toLong * LengthSize
    if (bodySize < lengths || bodySize > BodySizeMax)
      throw wrong(s"$count records in $bodySize bytes")
    if (codec != LeaderCodec.Lz4 && size - Size != bodySize)
      throw LedgerLogException.wireFormat(
        s"the body of an entry has ${size - Size} bytes instead of $bodySize"
      )
    LeaderHeader(codec, firstOffset, timeMs, count, bodySize.toInt)
  }
}
