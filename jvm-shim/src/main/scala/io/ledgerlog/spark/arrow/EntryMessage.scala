package io.ledgerlog.spark.arrow

import java.nio.ByteOrder

import scala.util.control.NonFatal

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.wire.SlicedBody
import org.apache.arrow.flatbuf.{BodyCompressionMethod, Message, MessageHeader, RecordBatch}
import org.apache.arrow.memory.ArrowBuf

/** The record batch message of an entry, with checked fields.
  *
  * @param body
  *   the memory with the body
  * @param bodyPlace
  *   where the body begins
  * @param nodes
  *   for each field, depth first, the number of values and of nulls
  * @param buffers
  *   for each buffer its place in the body and its size
  * @param firstRow
  *   number of the first row in the range; -1 if the entry has no such number
  * @param index
  *   the JSON of the range's index, if this is an index entry
  */
final case class EntryMessage(
    body: ArrowBuf,
    bodyPlace: Long,
    rows: Int,
    nodes: IndexedSeq[(Long, Long)],
    buffers: IndexedSeq[(Long, Long)],
    codec: BodyCodec,
    firstRow: Long,
    index: Option[String]
)

object EntryMessage {
  private val Continuation = 0xffffffff
  private val PrefixSize = 8
  private val RowsMax = 1L << 20
  private val PartsMax = 1 << 16
  private val MetadataMax = 64
  private val FirstRow = "ledgerlog.first_row"
  private val Index = "ledgerlog.index"

  /** Decode the message in `size` bytes of `bytes` from `place` on.
    *
    * @param sliced
    *   where the columns are, if the bytes are only some slices of an entry
    */
  def decode(
      bytes: ArrowBuf,
      place: Int,
      size: Int,
      sliced: Option[SlicedBody] = None
  ): EntryMessage =
    try decoded(bytes, place, size, sliced)
    catch {
      case error: LedgerLogException => throw error
      // The library throws unchecked exceptions for places outside of the message.
      case NonFatal(error) => throw wrong(s"its fields are not valid ($error)", error)
    }

  private def decoded(
      bytes: ArrowBuf,
      place: Int,
      size: Int,
      sliced: Option[SlicedBody]
  ): EntryMessage = {
    if (size < PrefixSize || bytes.getInt(place.toLong) != Continuation)
      throw wrong("it does not begin with a message")
    val metadataSize = bytes.getInt(place + 4L)
    if (metadataSize == 0) throw wrong("it is an Arrow end mark")
    if (metadataSize < 0 || metadataSize > size - PrefixSize)
      throw wrong(s"its metadata has $metadataSize bytes")
    val metadata = bytes
      .nioBuffer(place.toLong + PrefixSize, metadataSize)
      .slice()
      .order(ByteOrder.LITTLE_ENDIAN)
    val message = Message.getRootAsMessage(metadata)
    val bodySize = size - PrefixSize - metadataSize
    val wholeSize = sliced.fold(bodySize)(_.starts.last)
    if (message.bodyLength() != wholeSize || sliced.exists(_.size != bodySize))
      throw wrong(s"it holds $bodySize bytes after the metadata, not ${message.bodyLength()}")
    if (message.headerType() != MessageHeader.RecordBatch)
      throw wrong(s"its message has the type ${message.headerType()}")
    val batch = message.header(new RecordBatch).asInstanceOf[RecordBatch]
    if (batch == null) throw wrong("it has no header")
    val rows = batch.length()
    if (rows < 0 || rows > RowsMax) throw wrong(s"it has $rows rows")
    if (batch.variadicBufferCountsLength() > 0) throw wrong("it has columns of views")
    val custom = customOf(message)
    EntryMessage(
      body = bytes,
      bodyPlace = place.toLong + PrefixSize + metadataSize,
      rows = rows.toInt,
      nodes = parts(batch.nodesLength()) { place =>
        val node = batch.nodes(place)
        (node.length(), node.nullCount())
      },
      buffers = parts(batch.buffersLength()) { place =>
        val buffer = batch.buffers(place)
        val (from, length) = (buffer.offset(), buffer.length())
        def outside = wrong(s"a buffer of $length bytes at $from is not in its body")
        if (from < 0 || length < 0 || from > wholeSize || length > wholeSize - from) throw outside
        sliced.fold((from, length))(_.moved(from, length).getOrElse(throw outside))
      },
      codec = codecOf(batch),
      firstRow = custom.get(FirstRow).fold(-1L)(number),
      index = custom.get(Index)
    )
  }

  private def codecOf(batch: RecordBatch): BodyCodec = {
    val compression = Option(batch.compression())
    compression.foreach { each =>
      if (each.method() != BodyCompressionMethod.BUFFER)
        throw wrong(s"its compression has the method ${each.method()}")
    }
    BodyCodec.of(compression.map(_.codec()))
  }

  private def customOf(message: Message): Map[String, String] = {
    val count = message.customMetadataLength()
    if (count > MetadataMax) throw wrong(s"it has $count custom values")
    (0 until count).map { place =>
      val pair = message.customMetadata(place)
      pair.key() -> pair.value()
    }.toMap
  }

  private def number(text: String): Long =
    text.toLongOption.getOrElse(throw wrong(s"its first row is $text"))

  private def parts[A](count: Int)(part: Int => A): IndexedSeq[A] = {
    if (count > PartsMax) throw wrong(s"it has $count parts")
    (0 until count).map(part)
  }

  private def wrong(what: String, cause: Throwable = null): LedgerLogException =
    LedgerLogException.wireFormat(
      s"an entry is not an Arrow record batch of its ledger: $what",
      cause
    )
}
