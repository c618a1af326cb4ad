package io.ledgerlog.spark.arrow

import java.nio.ByteOrder

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.wire.{LeaderCodec, LeaderHeader}
import net.jpountz.lz4.{LZ4Exception, LZ4Factory}
import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}

/** The records of an entry of a leader log, as the body of a record batch with one binary column.
  *
  * The body of the entry has the lengths of the records, and then the records. The column needs
  * offsets: zero, and then the running sums of the lengths. So each sum replaces its length.
  */
object RecordBody {
  private val lengthSize = LeaderHeader.LengthSize

  /** The offsets of the column, and then its values, in new memory. The caller closes it. */
  def load(
      header: LeaderHeader,
      bytes: ArrowBuf,
      place: Int,
      size: Int,
      allocator: BufferAllocator
  ): ArrowBuf = {
    val body = allocator.buffer(lengthSize.toLong + header.bodySize)
    try {
      header.codec match {
        case LeaderCodec.Plain => body.setBytes(lengthSize.toLong, bytes, place.toLong, size.toLong)
        case LeaderCodec.Lz4 => unpack(header, bytes, place, size, body)
        case LeaderCodec.Arrow =>
          throw LedgerLogException.wireFormat("the entry has rows, but records were expected")
      }
      sumLengths(header, body)
      body
    } catch {
      case error: Throwable =>
        body.close()
        throw error
    }
  }

  /** The message of a body that `load` has made. */
  def messageOf(header: LeaderHeader, body: ArrowBuf): EntryMessage = {
    val offsetsSize = lengthSize * (header.count + 1L)
    EntryMessage(
      body = body,
      bodyPlace = 0,
      rows = header.count,
      nodes = IndexedSeq((header.count.toLong, 0L)),
      buffers = IndexedSeq(
        (0L, 0L),
        (0L, offsetsSize),
        (offsetsSize, lengthSize + header.bodySize - offsetsSize)
      ),
      codec = BodyCodec.of(None),
      firstRow = -1,
      index = None
    )
  }

  private def unpack(
      header: LeaderHeader,
      bytes: ArrowBuf,
      place: Int,
      size: Int,
      body: ArrowBuf
  ): Unit = {
    val packed = bytes.nioBuffer(place.toLong, size).slice()
    val target = body.nioBuffer(lengthSize.toLong, header.bodySize).slice()
    val unpacked =
      try
        LZ4Factory
          .fastestInstance()
          .safeDecompressor()
          .decompress(packed, 0, size, target, 0, header.bodySize)
      catch {
        case error: LZ4Exception =>
          throw LedgerLogException.wireFormat(
            s"LZ4 cannot decompress the body of $size bytes: ${error.getMessage}",
            error
          )
      }
    if (unpacked != header.bodySize)
      throw LedgerLogException.wireFormat(
        s"the decompressed body has $unpacked bytes, but its header states ${header.bodySize}"
      )
  }

  /** Replace the lengths of the records, which are big-endian, by the offsets of the column. */
  private def sumLengths(header: LeaderHeader, body: ArrowBuf): Unit = {
    val offsets = body.nioBuffer(0, lengthSize * (header.count + 1)).slice()
    offsets.order(ByteOrder.LITTLE_ENDIAN).putInt(0, 0)
    val valuesSize = header.bodySize.toLong - lengthSize.toLong * header.count
    var end = 0L
    var place = 1
    while (place <= header.count && end >= 0) {
      val length = Integer.reverseBytes(offsets.getInt(lengthSize * place))
      end = if (length < 0 || length > valuesSize - end) -1 else end + length
      offsets.putInt(lengthSize * place, end.toInt)
      place += 1
    }
    if (end != valuesSize)
      throw LedgerLogException.wireFormat(
        s"the lengths of ${header.count} records do not match a body of ${header.bodySize} bytes"
      )
  }
}
