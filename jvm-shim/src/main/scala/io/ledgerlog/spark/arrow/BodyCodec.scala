package io.ledgerlog.spark.arrow

import java.io.{ByteArrayInputStream, IOException}

import com.github.luben.zstd.Zstd
import io.ledgerlog.spark.LedgerLogException
import org.apache.arrow.flatbuf.CompressionType
import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}
import org.apache.commons.compress.compressors.lz4.FramedLZ4CompressorInputStream

/** Copies the buffers of a record batch out of an entry, and decompresses them.
  *
  * Uncompressed buffers are copied too, because the buffers of an entry are not aligned, and are in
  * the memory of a whole answer.
  */
sealed trait BodyCodec {

  /** The buffer at `[place, place + size)` of `body`, in new memory of at most `sizeMax` bytes. */
  def load(
      body: ArrowBuf,
      place: Long,
      size: Long,
      sizeMax: Long,
      allocator: BufferAllocator
  ): ArrowBuf
}

object BodyCodec {
  private val LengthSize = 8L

  def of(compression: Option[Byte]): BodyCodec = compression match {
    case None => Plain
    case Some(CompressionType.ZSTD) => ZstdFrames
    case Some(CompressionType.LZ4_FRAME) => Lz4Frames
    case Some(codec) =>
      throw LedgerLogException.wireFormat(s"an entry with the unknown compression $codec")
  }

  private object Plain extends BodyCodec {
    override def load(
        body: ArrowBuf,
        place: Long,
        size: Long,
        sizeMax: Long,
        allocator: BufferAllocator
    ): ArrowBuf = {
      checkSize(size, sizeMax)
      filled(size, allocator)(_.setBytes(0, body, place, size))
    }
  }

  /** Buffers that begin with 8 bytes: the size after decompression, or -1 if not compressed. */
  private abstract class Compressed extends BodyCodec {
    override final def load(
        body: ArrowBuf,
        place: Long,
        size: Long,
        sizeMax: Long,
        allocator: BufferAllocator
    ): ArrowBuf =
      if (size == 0) allocator.getEmpty
      else {
        if (size < LengthSize) throw LedgerLogException.wireFormat(s"a buffer of $size bytes")
        val length = body.getLong(place)
        val (from, rest) = (place + LengthSize, size - LengthSize)
        if (length == -1) Plain.load(body, from, rest, sizeMax, allocator)
        else {
          checkSize(length, sizeMax)
          filled(length, allocator)(decompress(body, from, rest, _))
        }
      }

    /** Decompress `size` bytes of `body` from `place` on. The result must fill `target`. */
    protected def decompress(body: ArrowBuf, place: Long, size: Long, target: ArrowBuf): Unit

    protected def wrong(what: String, cause: Throwable = null): LedgerLogException =
      LedgerLogException.wireFormat(s"a compressed buffer is not valid: $what", cause)
  }

  private object ZstdFrames extends Compressed {
    override protected def decompress(
        body: ArrowBuf,
        place: Long,
        size: Long,
        target: ArrowBuf
    ): Unit = {
      val wanted = target.writerIndex()
      val written = Zstd.decompressUnsafe(
        target.memoryAddress(),
        wanted,
        body.memoryAddress() + place,
        size
      )
      if (Zstd.isError(written)) throw wrong(Zstd.getErrorName(written))
      if (written != wanted) throw wrong(s"it has $written bytes instead of $wanted")
    }
  }

  /** Arrow links the blocks of a frame of more than 64 KiB, which lz4-java does not support. */
  private object Lz4Frames extends Compressed {
    override protected def decompress(
        body: ArrowBuf,
        place: Long,
        size: Long,
        target: ArrowBuf
    ): Unit = {
      val compressed = new Array[Byte](size.toInt)
      body.getBytes(place, compressed)
      try {
        val frames = new FramedLZ4CompressorInputStream(new ByteArrayInputStream(compressed))
        val piece = new Array[Byte](1 << 16)
        var written = 0L
        var count = frames.read(piece)
        while (count >= 0) {
          if (written + count > target.writerIndex()) throw wrong("it has more bytes than it tells")
          target.setBytes(written, piece, 0, count.toLong)
          written += count
          count = frames.read(piece)
        }
        if (written != target.writerIndex()) throw wrong(s"it has only $written bytes")
      } catch {
        case error @ (_: IOException | _: RuntimeException)
            if !error.isInstanceOf[LedgerLogException] =>
          throw wrong(String.valueOf(error.getMessage), error)
      }
    }
  }

  private def filled(size: Long, allocator: BufferAllocator)(fill: ArrowBuf => Unit): ArrowBuf = {
    val target = allocator.buffer(size)
    try {
      target.writerIndex(size)
      fill(target)
      target
    } catch {
      case error: Throwable =>
        target.close()
        throw error
    }
  }

  private def checkSize(size: Long, sizeMax: Long): Unit =
    if (size < 0 || size > sizeMax)
      throw LedgerLogException.wireFormat(s"a buffer of $size bytes, at most $sizeMax fit")
}
