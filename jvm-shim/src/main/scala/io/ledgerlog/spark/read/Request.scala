package io.ledgerlog.spark.read

import io.ledgerlog.spark.plan.DigestKind
import io.ledgerlog.spark.wire.{EntrySlices, Frames}

/** A request for consecutive entries of a ledger from one bookie.
  *
  * @param job
  *   the work that the answer belongs to
  * @param index
  *   the index of the bookie in the ensemble
  * @param count
  *   the number of entries; a single read requests one entry
  * @param slices
  *   the parts of the entries to request; only of a request for slices
  */
final class Request(
    val id: Long,
    val job: Job,
    val index: Int,
    val bookieId: String,
    val firstEntryId: Long,
    val count: Int,
    val mode: ReadMode,
    val digest: DigestKind,
    val sentNanos: Long,
    val slices: Option[EntrySlices]
) {
  def ledgerId: Long = job.part.ledgerId

  def entryIds: Seq[Long] = firstEntryId until firstEntryId + count

  /** Whether the answer has the request id, and lists entries with their sizes. */
  def isBatch: Boolean = mode != ReadMode.Single

  /** Maximum size of the answer after its head. */
  def answerSizeMax: Long = slices.fold(Frames.FrameSizeMax.toLong) { wanted =>
    entryIds.map(entryId => Frames.LengthSize + wanted.sizeOf(entryId).toLong).sum
  }
}
