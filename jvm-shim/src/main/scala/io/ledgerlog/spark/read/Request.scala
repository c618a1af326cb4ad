package io.ledgerlog.spark.read

import io.ledgerlog.spark.plan.DigestKind
import io.ledgerlog.spark.wire.EntrySlices

/** A request for consecutive entries of a ledger from one bookie.
  *
  * @param job
  *   the work that the answer belongs to
  * @param index
  *   the index of the bookie in the ensemble
  * @param count
  *   the number of entries; a request without batch requests one entry
  * @param slices
  *   the parts of the entries that a batch requests, if not whole entries
  */
final class Request(
    val id: Long,
    val job: Job,
    val index: Int,
    val bookieId: String,
    val firstEntryId: Long,
    val count: Int,
    val isBatch: Boolean,
    val digest: DigestKind,
    val sentNanos: Long,
    val slices: Option[EntrySlices]
) {
  def ledgerId: Long = job.part.ledgerId
}
