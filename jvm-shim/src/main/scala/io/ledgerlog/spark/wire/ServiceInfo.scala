package io.ledgerlog.spark.wire

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.BookieAddress

/** Decodes the registrations of bookies (WIRE.md#znodes). */
object ServiceInfo {
  private val Protocol = "bookie-rpc"
  private val PortMax = 65535L
  private val Operations = "ledgerlog.ops"
  private val ReadSlices = "READ_SLICES/1"

  def decode(bookieId: String, data: Array[Byte]): BookieAddress =
    if (data.isEmpty) ofId(bookieId)
    else {
      val fields = Protobuf.fieldsOf(data)
      endpointOf(bookieId, fields).copy(takesSlices = operationsOf(fields).contains(ReadSlices))
    }

  private def operationsOf(fields: Seq[ProtobufField]): Seq[String] =
    fields
      .filter(_.number == 7)
      .map(field => Protobuf.fieldsOf(field.asBytes))
      .filter(_.exists(part => part.number == 1 && part.asText == Operations))
      .flatMap(_.filter(_.number == 2))
      .flatMap(_.asText.split(","))

  private def endpointOf(bookieId: String, fields: Seq[ProtobufField]): BookieAddress =
    fields
      .filter(_.number == 6)
      .map(field => Protobuf.fieldsOf(field.asBytes))
      .collectFirst {
        case endpoint if endpoint.exists(part => part.number == 4 && part.asText == Protocol) =>
          val host = endpoint.find(_.number == 3).fold("")(_.asText)
          address(bookieId, host, endpoint.find(_.number == 2).fold(0L)(_.asLong))
      }
      .getOrElse(throw unusable(bookieId))

  private def ofId(bookieId: String): BookieAddress = {
    val colon = bookieId.lastIndexOf(':')
    val port = bookieId.drop(colon + 1)
    if (colon < 1 || port.isEmpty || port.length > 5 || !port.forall(c => c >= '0' && c <= '9'))
      throw unusable(bookieId)
    address(bookieId, bookieId.take(colon), port.toLong)
  }

  private def address(bookieId: String, host: String, port: Long): BookieAddress =
    if (host.isEmpty || port < 1 || port > PortMax) throw unusable(bookieId)
    else BookieAddress(host, port.toInt)

  private def unusable(bookieId: String): LedgerLogException =
    LedgerLogException.wireFormat(
      s"bookie $bookieId registered without a usable $Protocol endpoint"
    )
}
