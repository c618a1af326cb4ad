package io.ledgerlog.spark.wire

import io.ledgerlog.spark.{Golden, LedgerLogException}
import io.ledgerlog.spark.plan.{BookieAddress, DigestKind}

class MetadataSuite extends munit.FunSuite {
  private def metadata(format: Int, state: String): Array[Byte] = Golden.hex(
    Golden
      .apache("metadata")
      .find(r => r.get("format_version").asInt == format && r.get("state").asText == state)
      .get
      .get("bytes")
      .asText
  )

  test("metadata of Apache's encoder in format 3 is decoded") {
    val open = LedgerMetadata.decode(metadata(3, "OPEN"))
    assertEquals((open.ensembleSize, open.writeQuorum, open.lastEntryId), (3, 3, None))
    assertEquals(open.digest, DigestKind.Crc32c: DigestKind)
    assertEquals(
      open.fragments.map(_.ensemble),
      Seq(Seq("10.0.0.1:3181", "10.0.0.2:3181", "bookie-three"))
    )
    val closed = LedgerMetadata.decode(metadata(3, "CLOSED"))
    assertEquals(closed.lastEntryId, Some(250L))
    assertEquals(closed.fragments.map(_.firstEntryId), Seq(0L, 100L))
    assertEquals(LedgerMetadata.decode(metadata(3, "IN_RECOVERY")).lastEntryId, None)
  }

  test("other formats, and metadata that is cut off or damaged, are refused with a clear error") {
    Seq(1, 2).foreach { format =>
      val error = intercept[LedgerLogException](LedgerMetadata.decode(metadata(format, "OPEN")))
      assertEquals(error.kind, LedgerLogException.MetadataFormat)
    }
    val whole = metadata(3, "CLOSED")
    whole.indices.foreach { size =>
      intercept[LedgerLogException](LedgerMetadata.decode(whole.take(size)))
    }
    whole.indices.foreach { place =>
      val damaged = whole.clone()
      damaged(place) = (damaged(place) ^ 0x55).toByte
      try LedgerMetadata.decode(damaged)
      catch {
        case error: LedgerLogException =>
          assertEquals(error.kind, LedgerLogException.MetadataFormat)
      }
    }
  }

  test("registrations are decoded") {
    val record = Golden.apache("bookie_service_info").head
    val data = Golden.hex(record.get("bytes").asText)
    assertEquals(ServiceInfo.decode("b", data), BookieAddress("10.0.0.1", 3181))
    // A property of two fields, as docs/WIRE.md shows it.
    def withOperations(text: String): Array[Byte] = {
      val key = "ledgerlog.ops".getBytes
      val pair = Array[Byte](0x0a, key.length.toByte) ++ key ++
        Array[Byte](0x12, text.length.toByte) ++ text.getBytes
      data ++ Array[Byte](0x3a, pair.length.toByte) ++ pair
    }
    val takes = ServiceInfo.decode("b", withOperations("ADD_RUN/1,READ_SLICES/1"))
    assertEquals(takes, BookieAddress("10.0.0.1", 3181, takesSlices = true))
    assert(!ServiceInfo.decode("b", withOperations("ADD_RUN/1,READ_SLICES/12")).takesSlices)
    assertEquals(ServiceInfo.decode("host:1", Array.emptyByteArray), BookieAddress("host", 1))
    Seq("host", ":1", "host:", "host:0", "host:65536", "host:x").foreach { id =>
      intercept[LedgerLogException](ServiceInfo.decode(id, Array.emptyByteArray))
    }
    (1 until data.length).foreach { size =>
      try ServiceInfo.decode("b", data.take(size))
      catch { case _: LedgerLogException => () }
    }
  }
}
