package io.ledgerlog.spark.scan

import java.util.Random

import scala.collection.mutable

import io.ledgerlog.spark.{FakeBookie, FakeStore, GoldenRange, LedgerLogException, Ledgers}
import io.ledgerlog.spark.plan._
import io.ledgerlog.spark.read.ReadSettings

class LedgerPartitionReaderSuite extends munit.FunSuite {
  private val record = LedgerRecord(1, 1, Seq(Fragment(0, Seq("a"))), None, DigestKind.Crc32c)
  private val settings = ReadSettings(reconnectDelayMs = 10, readTimeoutMs = 400)

  private def stored(payloads: Seq[Array[Byte]]): Map[(Long, Long), Array[Byte]] =
    payloads.zipWithIndex.map { case (payload, place) =>
      (7L, place + 1L) -> Ledgers.stored(7, place + 1L, payload)
    }.toMap

  /** The bytes that the metrics of the last task show. */
  private var bytesRead = 0L

  /** Read ranges of the golden entries, and return the values of the column `k`. */
  private def keys(
      ranges: Seq[ScanRange],
      entries: Map[(Long, Long), Array[Byte]] = stored(GoldenRange.payloads("zstd")),
      failOnDataLoss: Boolean = true,
      limit: Option[Long] = None,
      answer: FakeBookie.Asked => FakeBookie.Answer = _ => FakeBookie.Serve
  ): (Seq[Long], FakeBookie) = {
    val bookie = new FakeBookie(entries)
    bookie.answer = answer
    val partition = new LedgerPartition(
      ranges = ranges,
      ledgers = Map(7L -> record),
      bookies = Map("a" -> bookie.address),
      schemas = Seq(GoldenRange.stored(0)),
      service = ServiceAddress("none", "/ledgers", Map.empty),
      password = Array.emptyByteArray,
      failOnDataLoss = failOnDataLoss,
      target = GoldenRange.columns(0),
      limit = limit
    )
    val before = Allocators.allocatedBytes
    val found = mutable.ArrayBuffer.empty[Long]
    val reader = new LedgerPartitionReader(
      partition,
      settings,
      new FakeStore(Map(7L -> record), Map("a" -> bookie.address)),
      Allocators.forTask("test"),
      () => ()
    )
    try
      while (reader.next()) {
        val batch = reader.get()
        found ++= (0 until batch.numRows).map(batch.column(0).getLong)
      }
    finally {
      bytesRead = reader.currentMetricsValues().find(_.name == "payloadBytesRead").get.value
      reader.close()
      reader.close() // a task that was cancelled closes its reader twice
      bookie.close()
    }
    assertEquals(Allocators.allocatedBytes, before)
    (found.toSeq, bookie)
  }

  test("a task returns the rows of its ranges") {
    assertEquals(keys(Seq(GoldenRange.range()))._1, 0L until 120L)
  }

  test("a range that is cut by offsets returns the rows between them") {
    assertEquals(keys(Seq(GoldenRange.range(35, 90)))._1, 35L until 90L)
  }

  test("the index of a range saves the entries without wanted rows") {
    val cut = GoldenRange.range(85, 90).copy(indexEntryId = GoldenRange.IndexEntryId)
    val (found, bookie) = keys(Seq(cut))
    assertEquals(found, 85L until 90L)
    assertEquals(bookie.requests, 2)
  }

  test("without its index, a range is read whole") {
    val lost = stored(GoldenRange.payloads("zstd")) - ((7L, GoldenRange.IndexEntryId))
    val cut = GoldenRange.range(85, 90).copy(indexEntryId = GoldenRange.IndexEntryId)
    assertEquals(keys(Seq(cut), lost)._1, 85L until 90L)
  }

  test("a task with a limit ends after its rows") {
    assertEquals(keys(Seq(GoldenRange.range()), limit = Some(50))._1, 0L until 50L)
  }

  test("lost rows fail the task, and the message names the option") {
    val lost = stored(GoldenRange.payloads("zstd")) - ((7L, 2L))
    val error = intercept[LedgerLogException](keys(Seq(GoldenRange.range()), lost))
    assertEquals(error.kind, LedgerLogException.DataLoss)
    assert(error.text.contains("""Set the option "failOnDataLoss" to "false""""), error.text)
  }

  test("with failOnDataLoss=false, the rest of a range is skipped") {
    val lost = stored(GoldenRange.payloads("zstd")) - ((7L, 2L))
    val ranges = Seq(
      GoldenRange.range(),
      GoldenRange.range(80, 120).copy(firstEntryId = 3, entryRows = Some((80, 120)))
    )
    assertEquals(keys(ranges, lost, failOnDataLoss = false)._1, (0L until 40L) ++ (80L until 120L))
  }

  test("a range of a deleted ledger is skipped, and the ranges around it are not") {
    val gone = GoldenRange.range().copy(ledgerId = 8)
    val ranges =
      Seq(GoldenRange.range(0, 40).copy(lastEntryId = 1, entryRows = Some((0, 40))), gone) :+
        GoldenRange.range(80, 120).copy(firstEntryId = 3, entryRows = Some((80, 120)))
    assertEquals(keys(ranges, failOnDataLoss = false)._1, (0L until 40L) ++ (80L until 120L))
    val error = intercept[LedgerLogException](keys(ranges))
    assert(error.text.contains("entries 1 to 3 of ledger 8"), error.text)
  }

  test("entries that the list does not describe are refused") {
    val swapped = GoldenRange.payloads("zstd")
    val entries = stored(Seq(swapped(0), swapped(2), swapped(1)))
    val error = intercept[LedgerLogException](keys(Seq(GoldenRange.range()), entries))
    assert(error.text.contains("80 as its first row: 40 was expected"), error.text)
    val short = GoldenRange.range().copy(entryRows = Some((0, 130)))
    assert(intercept[LedgerLogException](keys(Seq(short))).text.contains("are listed"))
  }

  private val compression = "none"
  private val slices = GoldenRange.slices(compression)

  private def withIndex(slices: Seq[Array[Int]]): Map[(Long, Long), Array[Byte]] =
    stored(
      GoldenRange.payloads(compression).init :+ GoldenRange.indexEntry(compression, slices)
    )

  private val sliced = Seq(GoldenRange.range().copy(slicesEntryId = GoldenRange.IndexEntryId))

  /** Read slices, and return the values and the requests. */
  private def slicedKeys(
      entries: Map[(Long, Long), Array[Byte]],
      ranges: Seq[ScanRange] = sliced,
      answer: FakeBookie.Asked => FakeBookie.Answer = _ => FakeBookie.Serve
  ): (Seq[Long], Seq[FakeBookie.Asked]) = {
    val asked = mutable.Buffer.empty[FakeBookie.Asked]
    val (found, _) = keys(
      ranges,
      entries,
      answer = each => {
        asked.synchronized(asked += each)
        answer(each)
      }
    )
    (found, asked.toSeq)
  }

  test("a task that needs one column reads the index, and then its slices") {
    val (found, asked) = slicedKeys(withIndex(slices))
    assertEquals(found, 0L until 120L)
    assertEquals(asked.map(_.operation), Seq(2, 66))
    val index = GoldenRange.indexEntry(compression, slices).length
    // The header and the column `k`.
    assertEquals(bytesRead, index + slices.map(entry => entry(0).toLong + entry(2)).sum)
  }

  test("a part of a range is read as slices") {
    val part = GoldenRange
      .range(45, 120)
      .copy(
        firstEntryId = 2,
        entryRows = Some((40, 120)),
        slicesEntryId = GoldenRange.IndexEntryId
      )
    val (found, asked) = slicedKeys(withIndex(slices), Seq(part))
    assertEquals(found, 45L until 120L)
    assertEquals(asked.last.slices.map(_._1), Seq(2L, 3L))
    val cut = sliced.map(_.copy(indexEntryId = GoldenRange.IndexEntryId, startOffset = 85))
    val (rest, requests) = slicedKeys(withIndex(slices), cut)
    assertEquals(rest, 85L until 120L)
    assertEquals(requests.last.slices.map(_._1), Seq(3L))
  }

  test("without a usable index, the range is read whole") {
    val whole = withIndex(slices)
    val index = (7L, GoldenRange.IndexEntryId)
    val header = slices.map(_.clone())
    header.foreach(entry => entry(2) += 1)
    Seq(
      whole - index,
      whole.updated(index, Ledgers.stored(7, GoldenRange.IndexEntryId, Array[Byte](1, 2))),
      whole.updated(index, whole((7L, 1L))),
      withIndex(header),
      withIndex(slices.take(2)),
      withIndex(slices.map(_.drop(2)))
    ).foreach { entries =>
      val (found, asked) = slicedKeys(entries)
      assertEquals(found, 0L until 120L)
      assert(!asked.exists(_.isSliced), asked)
    }
  }

  test("an index with other bytes than the entries costs time, but no rows") {
    val random = new Random(3)
    (0 until 40).foreach { _ =>
      val wrong = slices.map(_.clone())
      val entry = wrong(random.nextInt(wrong.size))
      entry(1 + 2 * random.nextInt(2)) ^= 1 << random.nextInt(32)
      val (found, asked) = slicedKeys(withIndex(wrong))
      assertEquals(found, 0L until 120L)
      assert(asked.count(_.isSliced) < 10, asked.size)
    }
  }

  test("an index of a hostile writer gives the rows or a clear error") {
    val random = new Random(4)
    val payloads = GoldenRange.payloads(compression)
    var refused = 0
    (0 until 60).foreach { _ =>
      val number = random.nextInt(slices.size)
      val lengths = slices(number).indices.by(2).map(slices(number)).toArray
      val (from, to) = (random.nextInt(lengths.length), random.nextInt(lengths.length))
      val moved = random.nextInt(lengths(from) + 1)
      lengths(from) -= moved
      lengths(to) += moved
      val hostile =
        slices.updated(number, GoldenRange.slicesOf(payloads(number), lengths.toIndexedSeq))
      try assertEquals(slicedKeys(withIndex(hostile))._1, 0L until 120L)
      catch {
        case error: LedgerLogException =>
          assertEquals(error.kind, LedgerLogException.WireFormat)
          refused += 1
      }
    }
    assert(refused > 5 && refused < 60, refused)
  }

  test("slices of a bookie that does not read them are whole entries") {
    val (found, _) = slicedKeys(
      withIndex(slices),
      answer = asked => if (asked.isSliced) FakeBookie.Refuse(100) else FakeBookie.Serve
    )
    assertEquals(found, 0L until 120L)
    val whole = GoldenRange.payloads(compression).take(GoldenRange.Entries).map(_.length).sum
    assertEquals(bytesRead, GoldenRange.indexEntry(compression, slices).length.toLong + whole)
  }

  test("lost entries are lost as slices, too") {
    val lost = withIndex(slices) - ((7L, 2L))
    val error = intercept[LedgerLogException](slicedKeys(lost))
    assertEquals(error.kind, LedgerLogException.DataLoss)
    assertEquals(keys(sliced, lost, failOnDataLoss = false)._1, 0L until 40L)
  }
}
