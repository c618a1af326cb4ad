package io.ledgerlog.spark.wire

import java.nio.{BufferUnderflowException, ByteBuffer}
import java.nio.charset.StandardCharsets.US_ASCII

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.{DigestKind, Fragment, LedgerRecord}

/** Decodes the metadata of ledgers in format 3, which ledgerlog writes (WIRE.md#metadata). */
object LedgerMetadata {
  private val Header = "BookieMetadataFormatVersion\t3\n".getBytes(US_ASCII)
  private val Closed = 3L

  def decode(record: Array[Byte]): LedgerRecord =
    try decodeMessage(messageIn(record))
    catch {
      case error: LedgerLogException if error.kind == LedgerLogException.WireFormat =>
        throw LedgerLogException.metadataFormat(s"ledger metadata cannot be read: ${error.text}")
    }

  private def messageIn(record: Array[Byte]): Array[Byte] = {
    if (!record.startsWith(Header))
      throw LedgerLogException.wireFormat("it is not of format 3, which this engine reads")
    val body = ByteBuffer.wrap(record, Header.length, record.length - Header.length)
    val size =
      try Protobuf.varint(body)
      catch {
        case _: BufferUnderflowException => -1L
      }
    if (size != body.remaining())
      throw LedgerLogException.wireFormat(
        s"a message of $size bytes is announced, ${body.remaining()} bytes follow"
      )
    record.takeRight(body.remaining())
  }

  private def decodeMessage(message: Array[Byte]): LedgerRecord = {
    val fields = Protobuf.fieldsOf(message)
    def number(field: Int): Option[Long] = fields.findLast(_.number == field).map(_.asLong)
    def needed(field: Int, name: String): Long =
      number(field).getOrElse(throw LedgerLogException.wireFormat(s"it names no $name"))
    val record = LedgerRecord(
      ensembleSize = needed(2, "ensemble size").toInt,
      writeQuorum = needed(1, "write quorum").toInt,
      fragments = fields.filter(_.number == 6).map(field => fragment(field.asBytes)),
      lastEntryId = Option.when(number(5).contains(Closed))(needed(4, "last entry")),
      digest = number(7).fold[DigestKind](DigestKind.Crc32c) { digest =>
        DigestKind
          .ofNumber(digest)
          .getOrElse(throw LedgerLogException.wireFormat(s"unknown digest type $digest"))
      }
    )
    check(record)
    record
  }

  private def fragment(message: Array[Byte]): Fragment = {
    val fields = Protobuf.fieldsOf(message)
    Fragment(
      fields.findLast(_.number == 2).fold(-1L)(_.asLong),
      fields.filter(_.number == 1).map(_.asText)
    )
  }

  private def check(record: LedgerRecord): Unit = {
    val firsts = record.fragments.map(_.firstEntryId)
    val isRising = firsts.headOption.contains(0L) && firsts.zip(firsts.drop(1)).forall {
      case (first, after) => first < after
    }
    val areComplete = record.fragments.forall { fragment =>
      fragment.ensemble.size == record.ensembleSize && fragment.ensemble.forall(_.nonEmpty)
    }
    if (!isRising || !areComplete)
      throw LedgerLogException.wireFormat(
        s"the fragments from entries ${firsts.mkString(", ")} do not fit an ensemble of " +
          s"${record.ensembleSize}"
      )
    if (record.writeQuorum < 1 || record.writeQuorum > record.ensembleSize)
      throw LedgerLogException.wireFormat(
        s"a write quorum of ${record.writeQuorum} of ${record.ensembleSize} bookies"
      )
  }
}
