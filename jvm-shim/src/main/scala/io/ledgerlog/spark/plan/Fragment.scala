package io.ledgerlog.spark.plan

/** The bookies that store the entries of a ledger from `firstEntryId` on. */
final case class Fragment(firstEntryId: Long, ensemble: Seq[String])
