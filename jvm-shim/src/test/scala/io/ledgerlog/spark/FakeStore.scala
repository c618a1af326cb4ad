package io.ledgerlog.spark

import io.ledgerlog.spark.plan.{BookieAddress, LedgerRecord}
import io.ledgerlog.spark.read.LedgerStore

/** Metadata in memory. It counts how often ledgers are read. */
final class FakeStore(
    var ledgers: Map[Long, LedgerRecord],
    var bookies: Map[String, BookieAddress] = Map.empty
) extends LedgerStore {
  var reads = 0

  override def ledger(ledgerId: Long): Option[LedgerRecord] = {
    reads += 1
    ledgers.get(ledgerId)
  }

  override def bookie(bookieId: String): Option[BookieAddress] = bookies.get(bookieId)

  override def close(): Unit = ()
}
