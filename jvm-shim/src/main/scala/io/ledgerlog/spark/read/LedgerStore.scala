package io.ledgerlog.spark.read

import io.ledgerlog.spark.plan.{BookieAddress, LedgerRecord}

/** The metadata of the cluster, for the cases that the plan does not cover. */
trait LedgerStore extends AutoCloseable {

  /** The newest metadata of a ledger; None if the ledger does not exist. */
  def ledger(ledgerId: Long): Option[LedgerRecord]

  /** The current address of a bookie; None if it is not registered. */
  def bookie(bookieId: String): Option[BookieAddress]
}
