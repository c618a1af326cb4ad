package io.ledgerlog.spark.wire

import java.nio.ByteBuffer

import io.ledgerlog.spark.LedgerLogException

/** Requests and the heads of answers, in version 2 of BookKeeper's protocol (WIRE.md#frames). */
object Frames {
  val FrameSizeMax: Int = 5253120
  val LengthSize: Int = 4
  val Version: Byte = 2
  val VersionMin: Byte = 1
  val Read: Byte = 2
  val BatchRead: Byte = 7
  val ReadSlices: Byte = 66

  /** The size of the head of an answer: packet header, code, ledger id and entry id. */
  val ReadHeadSize: Int = 24

  /** The size of this head and of the request id, which follows it in a batch. */
  val BatchHeadSize: Int = 32

  /** The size of a BATCH_READ answer without its entries, which its size limit includes. */
  val BatchCountedSize: Int = 36

  def read(ledgerId: Long, entryId: Long): ByteBuffer =
    started(20, Read).putLong(ledgerId).putLong(entryId).flip()

  def batchRead(
      ledgerId: Long,
      firstEntryId: Long,
      requestId: Long,
      count: Int,
      sizeBytes: Long
  ): ByteBuffer =
    started(40, BatchRead)
      .putLong(ledgerId)
      .putLong(firstEntryId)
      .putLong(requestId)
      .putInt(count)
      .putLong(sizeBytes)
      .flip()

  /** A request for byte ranges of some entries. Places count from the start of a stored entry. */
  def readSlices(
      ledgerId: Long,
      requestId: Long,
      sizeBytes: Long,
      entries: Seq[(Long, Seq[StoredSlice])]
  ): ByteBuffer = {
    val bodySize = 40 + entries.map { case (_, ranges) => 12 + 8 * ranges.size }.sum
    val frame = started(bodySize, ReadSlices)
      .putLong(ledgerId)
      .putLong(entries.head._1)
      .putLong(requestId)
      .putInt(entries.size)
      .putLong(sizeBytes)
    entries.foreach { case (entryId, ranges) =>
      frame.putLong(entryId).putInt(ranges.size)
      ranges.foreach(range => frame.putInt(range.place).putInt(range.size))
    }
    frame.flip()
  }

  private def started(bodySize: Int, operation: Byte): ByteBuffer =
    ByteBuffer
      .allocate(LengthSize + bodySize)
      .putInt(bodySize)
      .put(Version)
      .put(operation)
      .putShort(0)

  /** The size of an answer's body, from the first four bytes of the frame. */
  def bodySize(length: Int): Int =
    if (length < ReadHeadSize || length > FrameSizeMax - LengthSize)
      throw LedgerLogException.wireFormat(s"an answer of $length bytes")
    else length

  /** The head of an answer. `head` is at its first byte and has at least `ReadHeadSize` bytes. */
  def decodeHead(head: ByteBuffer): AnswerHead = {
    val version = head.get()
    val operation = head.get()
    head.getShort()
    if (version < VersionMin || version > Version)
      throw LedgerLogException.wireFormat(s"an answer of protocol version $version")
    if (operation != Read && operation != BatchRead && operation != ReadSlices)
      throw LedgerLogException.wireFormat(
        s"an answer with operation $operation, which no request has"
      )
    AnswerHead(operation, Code.ofNumber(head.getInt()), head.getLong(), head.getLong())
  }

  /** The places and sizes of the stored entries, or of their slices, in the rest of an answer. */
  def entriesOf(rest: ByteBuffer): IndexedSeq[StoredSlice] = {
    val found = IndexedSeq.newBuilder[StoredSlice]
    var place = rest.position()
    while (place < rest.limit()) {
      if (rest.limit() - place < LengthSize) throw shortAnswer(rest)
      val size = rest.getInt(place)
      place += LengthSize
      if (size < 0 || size > rest.limit() - place) throw shortAnswer(rest)
      found += StoredSlice(place, size)
      place += size
    }
    found.result()
  }

  private def shortAnswer(rest: ByteBuffer): LedgerLogException =
    LedgerLogException.wireFormat(
      s"a batch of ${rest.remaining()} bytes ends before its entries do"
    )
}
