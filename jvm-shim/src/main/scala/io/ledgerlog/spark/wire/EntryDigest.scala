package io.ledgerlog.spark.wire

import java.nio.ByteBuffer
import java.security.MessageDigest
import java.util.zip.{CRC32, CRC32C, Checksum}
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec

import io.ledgerlog.spark.plan.DigestKind

/** Compares the digest of a stored entry with its header and payload (WIRE.md#entry).
  *
  * One object must not be used by several threads at the same time.
  */
sealed abstract class EntryDigest(val kind: DigestKind) {

  /** Whether `digest` is the digest of the bytes of `header` and then of `payload`. */
  def matches(header: ByteBuffer, digest: ByteBuffer, payload: ByteBuffer): Boolean
}

object EntryDigest {
  def of(kind: DigestKind, password: Array[Byte]): EntryDigest = kind match {
    case DigestKind.Crc32c =>
      new Summed(
        kind,
        new CRC32C,
        stored => Integer.toUnsignedLong(stored.getInt(stored.position()))
      )
    case DigestKind.Crc32 =>
      new Summed(kind, new CRC32, stored => stored.getLong(stored.position()))
    case DigestKind.Hmac => new Keyed(password)
    case DigestKind.Dummy => Nothing
  }

  private final class Summed(kind: DigestKind, sum: Checksum, stored: ByteBuffer => Long)
      extends EntryDigest(kind) {
    override def matches(header: ByteBuffer, digest: ByteBuffer, payload: ByteBuffer): Boolean = {
      sum.reset()
      sum.update(header)
      sum.update(payload)
      sum.getValue == stored(digest)
    }
  }

  private final class Keyed(password: Array[Byte]) extends EntryDigest(DigestKind.Hmac) {
    private val mac = {
      val key = MessageDigest.getInstance("SHA-1")
      key.update("mac".getBytes("US-ASCII"))
      val made = Mac.getInstance("HmacSHA1")
      made.init(new SecretKeySpec(key.digest(password), "HmacSHA1"))
      made
    }

    override def matches(header: ByteBuffer, digest: ByteBuffer, payload: ByteBuffer): Boolean = {
      mac.update(header)
      mac.update(payload)
      ByteBuffer.wrap(mac.doFinal()) == digest
    }
  }

  private object Nothing extends EntryDigest(DigestKind.Dummy) {
    override def matches(header: ByteBuffer, digest: ByteBuffer, payload: ByteBuffer): Boolean =
      true
  }
}
