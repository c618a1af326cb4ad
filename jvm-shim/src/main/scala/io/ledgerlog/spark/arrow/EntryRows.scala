package io.ledgerlog.spark.arrow

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.ScanRange
import io.ledgerlog.spark.wire.{LeaderCodec, LeaderHeader, SlicedBody}
import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}

/** The rows of an entry, before their columns are loaded.
  *
  * @param firstRow
  *   number of the first row in the range; negative if this source did not write the entry
  * @param appendTimeMs
  *   when a leader accepted the rows; none if the plan has the commit times
  * @param ownBody
  *   memory that belongs to these rows and not to the entry
  */
final class EntryRows(
    val message: EntryMessage,
    val firstRow: Long,
    appendTimeMs: Option[Long],
    ownBody: Option[ArrowBuf]
) extends AutoCloseable {

  /** The range with the append time of these rows as its commit time. */
  def timed(range: ScanRange): ScanRange =
    appendTimeMs.fold(range)(ms => range.copy(commitTimes = Seq(Long.MaxValue -> Some(ms))))

  override def close(): Unit = ownBody.foreach(_.close())
}

object EntryRows {

  /** Decode an entry of a range, in the form that the range has.
    *
    * @param sliced
    *   where the columns are, if the bytes are only some slices of an entry
    */
  def decode(
      range: ScanRange,
      bytes: ArrowBuf,
      place: Int,
      size: Int,
      sliced: Option[SlicedBody],
      allocator: BufferAllocator
  ): EntryRows = range.form match {
    case ScanRange.ArrowStream =>
      val message = EntryMessage.decode(bytes, place, size, sliced)
      new EntryRows(message, message.firstRow, None, None)
    case ScanRange.LeaderRows =>
      val header = headerOf(bytes, place, size)
      if (header.codec != LeaderCodec.Arrow)
        throw LedgerLogException.wireFormat("the entry has records, but the leader log has rows")
      val message = EntryMessage.decode(bytes, place + LeaderHeader.Size, size - LeaderHeader.Size)
      if (message.rows != header.count)
        throw LedgerLogException.wireFormat(
          s"an entry has ${message.rows} rows, but its header states ${header.count}"
        )
      ofLeader(range, header, message, None)
    case ScanRange.LeaderRecords =>
      val header = headerOf(bytes, place, size)
      val body = RecordBody.load(
        header,
        bytes,
        place + LeaderHeader.Size,
        size - LeaderHeader.Size,
        allocator
      )
      ofLeader(range, header, RecordBody.messageOf(header, body), Some(body))
    case other => throw LedgerLogException.wireFormat(s"the plan names a form of entries $other")
  }

  /** The header of an entry of a leader log. */
  def headerOf(bytes: ArrowBuf, place: Int, size: Int): LeaderHeader =
    LeaderHeader.decode(bytes.nioBuffer(place.toLong, size).slice())

  private def ofLeader(
      range: ScanRange,
      header: LeaderHeader,
      message: EntryMessage,
      body: Option[ArrowBuf]
  ): EntryRows =
    new EntryRows(
      message,
      header.firstOffset - range.rangeOffset,
      Some(header.appendTimeMs),
      body
    )
}
