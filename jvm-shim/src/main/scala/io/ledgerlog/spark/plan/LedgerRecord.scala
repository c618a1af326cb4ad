package io.ledgerlog.spark.plan

/** The part of a ledger's metadata that a reader uses. `lastEntryId` is empty while it is open. */
final case class LedgerRecord(
    ensembleSize: Int,
    writeQuorum: Int,
    fragments: Seq[Fragment],
    lastEntryId: Option[Long],
    digest: DigestKind
) {
  def isStriped: Boolean = ensembleSize > writeQuorum

  /** The fragment that contains an entry. */
  def fragmentOf(entryId: Long): Fragment = fragments.filter(_.firstEntryId <= entryId).last

  /** The last entry of the fragment that contains `entryId`; empty for the last fragment. */
  def lastOfFragment(entryId: Long): Option[Long] =
    fragments.map(_.firstEntryId).filter(_ > entryId).minOption.map(_ - 1)

  /** Indexes of the bookies in the ensemble that store an entry. */
  def writeSet(entryId: Long): Seq[Int] = {
    val first = (entryId % ensembleSize).toInt
    (0 until writeQuorum).map(place => (first + place) % ensembleSize)
  }
}
