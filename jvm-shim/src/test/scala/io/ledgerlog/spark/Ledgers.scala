package io.ledgerlog.spark

import java.nio.ByteBuffer
import java.util.zip.{CRC32, CRC32C, Checksum}
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec

import io.ledgerlog.spark.plan.DigestKind

/** Stored entries, encoded as a writer encodes them. */
object Ledgers {
  def stored(
      ledgerId: Long,
      entryId: Long,
      payload: Array[Byte],
      kind: DigestKind = DigestKind.Crc32c,
      password: String = ""
  ): Array[Byte] = {
    val header = ByteBuffer
      .allocate(32)
      .putLong(ledgerId)
      .putLong(entryId)
      .putLong(entryId - 1)
      .putLong(payload.length.toLong * (entryId + 1))
      .array()
    val digest = kind match {
      case DigestKind.Crc32c =>
        ByteBuffer.allocate(4).putInt(sum(new CRC32C, header, payload).toInt)
      case DigestKind.Crc32 => ByteBuffer.allocate(8).putLong(sum(new CRC32, header, payload))
      case DigestKind.Hmac => ByteBuffer.wrap(mac(password, header, payload))
      case DigestKind.Dummy => ByteBuffer.allocate(0)
    }
    header ++ digest.array() ++ payload
  }

  private def sum(sum: Checksum, header: Array[Byte], payload: Array[Byte]): Long = {
    sum.update(header)
    sum.update(payload)
    sum.getValue
  }

  private def mac(password: String, header: Array[Byte], payload: Array[Byte]): Array[Byte] = {
    val sha = java.security.MessageDigest.getInstance("SHA-1")
    val key = sha.digest("mac".getBytes ++ password.getBytes)
    val made = Mac.getInstance("HmacSHA1")
    made.init(new SecretKeySpec(key, "HmacSHA1"))
    made.doFinal(header ++ payload)
  }
}
