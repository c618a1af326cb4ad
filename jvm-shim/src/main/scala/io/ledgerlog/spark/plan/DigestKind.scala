package io.ledgerlog.spark.plan

/** The digest of a ledger's entries. `number` is the number in the metadata of ledgers. */
sealed abstract class DigestKind(val number: Int, val name: String, val sizeBytes: Int)
    extends Serializable

object DigestKind {
  case object Crc32 extends DigestKind(1, "CRC32", 8)
  case object Hmac extends DigestKind(2, "HMAC", 20)
  case object Crc32c extends DigestKind(3, "CRC32C", 4)
  case object Dummy extends DigestKind(4, "DUMMY", 0)

  private val all = Seq(Crc32, Hmac, Crc32c, Dummy)

  def ofNumber(number: Long): Option[DigestKind] = all.find(_.number == number)
  def ofName(name: String): Option[DigestKind] = all.find(_.name == name)
}
