package io.ledgerlog.spark.wire

import java.nio.{BufferUnderflowException, ByteBuffer}

import io.ledgerlog.spark.LedgerLogException

/** Decodes protobuf messages into their fields. */
object Protobuf {
  private val VarintSizeMax = 10

  def fieldsOf(message: Array[Byte]): Seq[ProtobufField] = {
    val bytes = ByteBuffer.wrap(message)
    val fields = Seq.newBuilder[ProtobufField]
    try
      while (bytes.hasRemaining) {
        val tag = varint(bytes)
        val number = (tag >>> 3).toInt
        if (number < 1) throw LedgerLogException.wireFormat(s"a field with number $number")
        (tag & 7).toInt match {
          case 0 => fields += ProtobufField(number, Left(varint(bytes)))
          case 1 => skip(bytes, 8)
          case 2 =>
            val size = varint(bytes)
            if (size < 0 || size > bytes.remaining())
              throw LedgerLogException.wireFormat(s"field $number of $size bytes is cut off")
            val value = new Array[Byte](size.toInt)
            bytes.get(value)
            fields += ProtobufField(number, Right(value))
          case 5 => skip(bytes, 4)
          case kind => throw LedgerLogException.wireFormat(s"field $number has wire type $kind")
        }
      }
    catch {
      case error: BufferUnderflowException =>
        throw LedgerLogException.wireFormat("a message ends within a field", error)
    }
    fields.result()
  }

  def varint(bytes: ByteBuffer): Long = {
    var value = 0L
    var place = 0
    while (place < VarintSizeMax) {
      val next = bytes.get()
      value |= (next & 0x7fL) << (7 * place)
      if (next >= 0) return value
      place += 1
    }
    throw LedgerLogException.wireFormat("a varint of more than 10 bytes")
  }

  private def skip(bytes: ByteBuffer, size: Int): Unit =
    if (bytes.remaining() < size) throw new BufferUnderflowException
    else bytes.position(bytes.position() + size)
}
