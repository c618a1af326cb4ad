package io.ledgerlog.spark.wire

import io.ledgerlog.spark.LedgerLogException

/** The encoding of the body of an entry of a leader log. */
sealed abstract class LeaderCodec(val number: Byte)

object LeaderCodec {

  /** The lengths of all records, and then the records. */
  case object Plain extends LeaderCodec(0)

  /** The bytes of `Plain`, compressed as one LZ4 block. */
  case object Lz4 extends LeaderCodec(1)

  /** A record batch message of Arrow. */
  case object Arrow extends LeaderCodec(2)

  def ofNumber(number: Byte): LeaderCodec =
    Seq(Plain, Lz4, Arrow)
      .find(_.number == number)
      .getOrElse(
        throw LedgerLogException.wireFormat(
          s"an entry of a leader log has the unknown codec $number"
        )
      )
}
