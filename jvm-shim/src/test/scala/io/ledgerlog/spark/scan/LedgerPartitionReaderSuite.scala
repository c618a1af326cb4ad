package io.ledgerlog.spark.scan

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

  /** Read ranges of the golden entries, and return the values of the column `k`. */
  private def keys(
      ranges: Seq[ScanRange],
      entries: Map[(Long, Long), Array[Byte]] = stored(GoldenRange.payloads("zstd")),
      failOnDataLoss: Boolean = true,
      limit: Option[Long] = None
  ): (Seq[Long], FakeBookie) = {
    val bookie = new FakeBookie(entries)
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
}
