package io.ledgerlog.spark.wire

import java.nio.ByteBuffer
import java.nio.file.{Files, Path}

import io.ledgerlog.spark.{Golden, LedgerLogException}

class FramesSuite extends munit.FunSuite {
  private def bytesOf(buffer: ByteBuffer): Seq[Byte] = {
    val bytes = new Array[Byte](buffer.remaining())
    buffer.get(bytes)
    bytes.toSeq
  }

  test("requests are those of Apache's encoders") {
    val reads = Golden
      .apache("read_request")
      .filter(record => record.get("version").asInt == 2 && record.get("flags").asInt == 0)
    val batches = Golden
      .apache("batch_read_request")
      .filter(record => record.get("version").asInt == 2 && record.get("flags").asInt == 0)
    assert(reads.nonEmpty && batches.nonEmpty)
    reads.foreach { record =>
      val frame = Frames.read(record.get("ledger_id").asLong, record.get("entry_id").asLong)
      assertEquals(bytesOf(frame), Golden.hex(record.get("frame").asText).toSeq)
    }
    batches.foreach { record =>
      val frame = Frames.batchRead(
        record.get("ledger_id").asLong,
        record.get("entry_id").asLong,
        record.get("request_id").asLong,
        record.get("max_count").asInt,
        record.get("max_size").asLong
      )
      assertEquals(bytesOf(frame), Golden.hex(record.get("frame").asText).toSeq)
    }
  }

  test("a request for slices is the example of docs/WIRE.md") {
    val frame = Frames.readSlices(
      42,
      9,
      1 << 20,
      Seq(0L -> Seq(StoredSlice(36, 3)), 1L -> Seq(StoredSlice(36, 2)))
    )
    assertEquals(bytesOf(frame), example("read-slices").toSeq)
  }

  test("the example of an answer to it in docs/WIRE.md is decoded") {
    val frame = ByteBuffer.wrap(example("read-slices-answer"))
    assertEquals(Frames.bodySize(frame.getInt()), frame.remaining())
    val head = Frames.decodeHead(frame)
    assertEquals(head, AnswerHead(Frames.ReadSlices, Code.Ok, 42, 0))
    assertEquals(frame.getLong(), 9L)
    val slices = Frames.entriesOf(frame).map { each =>
      new String(frame.array, each.place, each.size)
    }
    assertEquals(slices, IndexedSeq("one", "tw"))
  }

  /** The bytes of a worked example. */
  private def example(name: String): Array[Byte] = {
    val text = Files.readString(Path.of("docs", "WIRE.md"))
    val block = text.split(s"```hex $name\n")(1).split("```")(0)
    Golden.hex(
      block.linesIterator.map(_.takeWhile(_ != '#')).mkString.filterNot(_.isWhitespace)
    )
  }

  test("answers of Apache's encoders are decoded") {
    val reads = Golden.apache("read_response")
    val batches = Golden.apache("batch_read_response")
    assert(reads.nonEmpty && batches.nonEmpty)
    (reads ++ batches).foreach { record =>
      val frame = ByteBuffer.wrap(Golden.hex(record.get("frame").asText))
      assertEquals(Frames.bodySize(frame.getInt()), frame.remaining())
      val head = Frames.decodeHead(frame)
      assertEquals(head.code, Code.ofNumber(record.get("error_code").asInt))
      assertEquals(head.ledgerId, record.get("ledger_id").asLong)
      assertEquals(head.entryId, record.get("entry_id").asLong)
    }
  }

  test("the entries of a batch are found") {
    val record = Golden.apache("batch_read_response").find(_.get("entries").asText.nonEmpty).get
    val frame = ByteBuffer.wrap(Golden.hex(record.get("frame").asText))
    frame.position(Frames.LengthSize + Frames.BatchHeadSize)
    val found = Frames.entriesOf(frame.slice()).map { slice =>
      bytesOf(frame.slice().slice(slice.place, slice.size))
    }
    val expected = record.get("entries").asText.split(" ").map(text => Golden.hex(text).toSeq)
    assertEquals(found, expected.toIndexedSeq)
  }

  test("no size is believed before it is checked") {
    Seq(Int.MinValue, -1, 0, 23, Frames.FrameSizeMax - 3, Int.MaxValue).foreach { size =>
      intercept[LedgerLogException](Frames.bodySize(size))
    }
    Seq(Seq(0, 0, 0), Seq(0, 0, 0, 2, 1), Seq(127, 0, 0, 0, 1), Seq(-1, 0, 0, 0)).foreach { rest =>
      val bytes = ByteBuffer.wrap(rest.map(_.toByte).toArray)
      intercept[LedgerLogException](Frames.entriesOf(bytes))
    }
  }

  test("an answer of another version or operation is refused") {
    def head(version: Int, operation: Int): ByteBuffer =
      ByteBuffer.allocate(Frames.ReadHeadSize).put(version.toByte).put(operation.toByte).rewind()
    intercept[LedgerLogException](Frames.decodeHead(head(3, 2)))
    intercept[LedgerLogException](Frames.decodeHead(head(0, 2)))
    intercept[LedgerLogException](Frames.decodeHead(head(2, 1)))
    assertEquals(Frames.decodeHead(head(1, 7)).operation, Frames.BatchRead)
  }
}
