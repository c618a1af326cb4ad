package io.ledgerlog.spark.arrow

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.LedgerLogException
import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}
import org.apache.arrow.vector.{FieldVector, TypeLayout}
import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.arrow.vector.types.pojo.{ArrowType, Field}

/** Loads chosen columns of an entry. The other columns are neither copied nor decompressed.
  *
  * Every size and offset is compared with the number of values before a value is read, because
  * Spark reads the memory of a column without such checks.
  */
final class ColumnLoader(fields: IndexedSeq[Field], allocator: BufferAllocator) {
  private val nodeCounts = fields.map(ColumnLoader.nodesOf)
  private val bufferCounts = fields.map(ColumnLoader.buffersOf)
  private val firstNodes = nodeCounts.scanLeft(0)(_ + _)
  private val firstBuffers = bufferCounts.scanLeft(0)(_ + _)

  /** The vector of one column. The caller closes it. */
  def load(message: EntryMessage, place: Int): FieldVector = {
    if (message.nodes.size != firstNodes.last || message.buffers.size != firstBuffers.last)
      throw wrong(
        fields(place),
        s"the entry has ${message.nodes.size} nodes and ${message.buffers.size} buffers"
      )
    val vector = fields(place).createVector(allocator)
    try {
      new Cursor(message, firstNodes(place), firstBuffers(place)).load(vector, message.rows.toLong)
      vector
    } catch {
      case error: Throwable =>
        vector.close()
        throw error
    }
  }

  private def wrong(field: Field, what: String): LedgerLogException =
    LedgerLogException.wireFormat(s"column '${field.getName}' of an entry is not valid: $what")

  /** Loads fields depth first, which is the order of their nodes and buffers. */
  private final class Cursor(message: EntryMessage, firstNode: Int, firstBuffer: Int) {
    private var node = firstNode
    private var buffer = firstBuffer

    /** Load a vector of `expected` values. A child of another vector (`isBelow`) may have more. */
    def load(vector: FieldVector, expected: Long, isBelow: Boolean = false): Unit = {
      val field = vector.getField
      val (length, nulls) = message.nodes(node)
      node += 1
      if ((if (isBelow) length < expected else length != expected) || length > Int.MaxValue / 8)
        throw wrong(field, s"it has $length values instead of $expected")
      if (nulls < 0 || nulls > length) throw wrong(field, s"it has $nulls nulls of $length values")
      val count = TypeLayout.getTypeBufferCount(field.getType)
      val buffers = new Array[ArrowBuf](count)
      try {
        (0 until count).foreach { place =>
          val (from, size) = message.buffers(buffer)
          buffer += 1
          // Arrow may write offsets of other rows for a list without values.
          buffers(place) =
            if (length == 0) allocator.getEmpty
            else
              message.codec.load(
                message.body,
                message.bodyPlace + from,
                size,
                sizeMax(field, place, length),
                allocator
              )
        }
        val below = check(field, length, nulls, buffers)
        vector.loadFieldBuffers(new ArrowFieldNode(length, nulls), buffers.toSeq.asJava)
        vector.getChildrenFromFields.asScala.foreach(load(_, below, isBelow = true))
      } finally buffers.filter(_ != null).foreach(_.close())
    }

    /** Limit of the memory of a buffer. Only values of variable size have no fixed limit. */
    private def sizeMax(field: Field, place: Int, length: Long): Long = {
      val width = ColumnLoader.widthOf(field.getType)
      if (place == 0) padded((length + 7) / 8)
      else if (place == 1)
        width.fold(padded(4 * (length + 1)))(bits => padded((length * bits + 7) / 8))
      else ColumnLoader.ValuesMax
    }

    private def padded(size: Long): Long = (size + 127) / 64 * 64

    /** Compare the buffers with the number of values. Returns how many values a child needs. */
    private def check(field: Field, length: Long, nulls: Long, buffers: Array[ArrowBuf]): Long = {
      def needs(place: Int, size: Long): Unit =
        if (buffers(place).readableBytes() < size)
          throw wrong(field, s"buffer $place has ${buffers(place).readableBytes()} bytes of $size")
      if (buffers.nonEmpty && nulls > 0 && nulls < length) needs(0, (length + 7) / 8)
      field.getType match {
        case _: ArrowType.Null | _: ArrowType.Struct => length
        case _: ArrowType.List | _: ArrowType.Map => offsets(field, length, buffers(1))
        case _: ArrowType.Utf8 | _: ArrowType.Binary =>
          needs(2, offsets(field, length, buffers(1)))
          0
        case kind =>
          val bits = ColumnLoader.widthOf(kind).getOrElse(throw wrong(field, s"its type is $kind"))
          needs(1, (length * bits + 7) / 8)
          0
      }
    }

    /** Check that offsets are not negative and never decrease, and return the last offset. */
    private def offsets(field: Field, length: Long, buffer: ArrowBuf): Long =
      if (length == 0) 0
      else {
        if (buffer.readableBytes() < 4 * (length + 1))
          throw wrong(field, s"its offsets have ${buffer.readableBytes()} bytes")
        var previous = buffer.getInt(0)
        if (previous < 0) throw wrong(field, s"its values begin at $previous")
        var place = 1L
        while (place <= length) {
          val next = buffer.getInt(4 * place)
          if (next < previous) throw wrong(field, s"its offset $next follows $previous")
          previous = next
          place += 1
        }
        previous.toLong
      }
  }
}

object ColumnLoader {

  /** Limit of the memory of values of variable size in one entry: their offsets have 32 bits. */
  val ValuesMax: Long = Int.MaxValue.toLong

  private def nodesOf(field: Field): Int = 1 + field.getChildren.asScala.map(nodesOf).sum

  private def buffersOf(field: Field): Int =
    TypeLayout.getTypeBufferCount(field.getType) + field.getChildren.asScala.map(buffersOf).sum

  /** Bits of a value, if all values of the type have the same size. */
  private def widthOf(kind: ArrowType): Option[Int] = kind match {
    case _: ArrowType.Bool => Some(1)
    case int: ArrowType.Int => Some(int.getBitWidth)
    case float: ArrowType.FloatingPoint =>
      float.getPrecision match {
        case org.apache.arrow.vector.types.FloatingPointPrecision.SINGLE => Some(32)
        case org.apache.arrow.vector.types.FloatingPointPrecision.DOUBLE => Some(64)
        case _ => None
      }
    case decimal: ArrowType.Decimal => Some(decimal.getBitWidth)
    case _: ArrowType.Date => Some(32)
    case time: ArrowType.Time => Some(time.getBitWidth)
    case _: ArrowType.Timestamp | _: ArrowType.Duration => Some(64)
    case _ => None
  }

  /** Whether this engine loads columns of the field's type. */
  def supports(field: Field): Boolean = field.getType match {
    case _: ArrowType.Null | _: ArrowType.Utf8 | _: ArrowType.Binary => true
    case _: ArrowType.Struct | _: ArrowType.List | _: ArrowType.Map =>
      field.getChildren.asScala.forall(supports)
    case kind => widthOf(kind).isDefined
  }
}
