package io.ledgerlog.spark.wire

import java.nio.charset.StandardCharsets.UTF_8

import io.ledgerlog.spark.LedgerLogException

/** One field of a protobuf message: a number, or bytes. */
final case class ProtobufField(number: Int, value: Either[Long, Array[Byte]]) {
  def asLong: Long = value.swap.getOrElse(throw wrong("a number"))

  def asBytes: Array[Byte] = value.getOrElse(throw wrong("bytes"))

  def asText: String = new String(asBytes, UTF_8)

  private def wrong(expected: String): LedgerLogException =
    LedgerLogException.wireFormat(s"field $number of a message is not $expected")
}
