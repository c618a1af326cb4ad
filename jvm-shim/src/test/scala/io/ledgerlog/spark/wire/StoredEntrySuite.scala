package io.ledgerlog.spark.wire

import java.nio.ByteBuffer

import io.ledgerlog.spark.{Golden, Ledgers}
import io.ledgerlog.spark.plan.DigestKind

class StoredEntrySuite extends munit.FunSuite {
  private val kinds =
    Seq(DigestKind.Crc32c, DigestKind.Crc32, DigestKind.Hmac, DigestKind.Dummy)

  private def payloadOf(
      stored: Array[Byte],
      ledgerId: Long,
      entryId: Long,
      digest: EntryDigest
  ): Option[StoredSlice] = StoredEntry.payloadOf(
    ByteBuffer.wrap(stored),
    StoredSlice(0, stored.length),
    ledgerId,
    entryId,
    digest
  )

  test("entries of Apache's encoders are valid, with each digest") {
    val whole = Golden.apache("add").filter { record =>
      record.has("entry") && !record.get("entry").asText.startsWith("sha256")
    }
    assertEquals(whole.map(_.get("digest").asText).toSet, Set("CRC32", "CRC32C", "HMAC", "DUMMY"))
    whole.foreach { record =>
      val kind = DigestKind.ofName(record.get("digest").asText).get
      val digest = EntryDigest.of(kind, record.get("password").asText.getBytes)
      val stored = Golden.hex(record.get("entry").asText)
      val payload =
        payloadOf(stored, record.get("ledger_id").asLong, record.get("entry_id").asLong, digest)
      assertEquals(payload.map(_.size), Some(record.get("payload_bytes").asInt))
    }
  }

  kinds.foreach { kind =>
    test(s"each flipped bit of an entry with the digest ${kind.name} is noticed") {
      val digest = EntryDigest.of(kind, "secret".getBytes)
      val stored = Ledgers.stored(7, 3, "some payload".getBytes, kind, "secret")
      assert(payloadOf(stored, 7, 3, digest).isDefined)
      val noticed = if (kind == DigestKind.Dummy) 16 else stored.length
      (0 until 8 * noticed).foreach { bit =>
        val damaged = stored.clone()
        damaged(bit / 8) = (damaged(bit / 8) ^ (1 << bit % 8)).toByte
        assertEquals(payloadOf(damaged, 7, 3, digest), None, s"bit $bit")
      }
    }
  }

  test("an entry of another ledger, of another id, or cut off is not valid") {
    val digest = EntryDigest.of(DigestKind.Crc32c, Array.emptyByteArray)
    val stored = Ledgers.stored(7, 3, "some payload".getBytes)
    assertEquals(payloadOf(stored, 8, 3, digest), None)
    assertEquals(payloadOf(stored, 7, 4, digest), None)
    stored.indices.foreach(size => assertEquals(payloadOf(stored.take(size), 7, 3, digest), None))
  }

  test("a HMAC with another password is not valid") {
    val stored = Ledgers.stored(7, 3, "some payload".getBytes, DigestKind.Hmac, "secret")
    assertEquals(payloadOf(stored, 7, 3, EntryDigest.of(DigestKind.Hmac, "other".getBytes)), None)
  }

  test("the entries before the first damaged one are valid") {
    val good = (0 until 4).map(id => Ledgers.stored(7, id.toLong, Array.fill(10)(id.toByte)))
    good(2)(40) = (good(2)(40) ^ 1).toByte
    val slices = good.scanLeft(0)(_ + _.length).zip(good).map { case (place, stored) =>
      StoredSlice(place, stored.length)
    }
    val digest = EntryDigest.of(DigestKind.Crc32c, Array.emptyByteArray)
    val bytes = ByteBuffer.wrap(good.flatten.toArray)
    val found = StoredEntry.validPrefix(bytes, slices, 7, 0, digest)
    assertEquals(found.map(_.size), IndexedSeq(10, 10))
  }
}
