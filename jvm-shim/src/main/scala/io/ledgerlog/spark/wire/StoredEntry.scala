package io.ledgerlog.spark.wire

import java.nio.ByteBuffer

/** Verifies stored entries: header, digest, payload (WIRE.md#entry). */
object StoredEntry {
  val HeaderSize: Int = 32

  /** The payload of the stored entry in `slice`, or None if it is not a valid entry of these ids. */
  def payloadOf(
      bytes: ByteBuffer,
      slice: StoredSlice,
      ledgerId: Long,
      entryId: Long,
      digest: EntryDigest
  ): Option[StoredSlice] = {
    val overhead = HeaderSize + digest.kind.sizeBytes
    if (slice.size < overhead) None
    else {
      val size = slice.size - overhead
      val confirmed = bytes.getLong(slice.place + 16)
      val isValid = bytes.getLong(slice.place) == ledgerId &&
        bytes.getLong(slice.place + 8) == entryId &&
        confirmed >= -1 && confirmed < entryId &&
        bytes.getLong(slice.place + 24) >= size &&
        digest.matches(
          bytes.slice(slice.place, HeaderSize),
          bytes.slice(slice.place + HeaderSize, digest.kind.sizeBytes),
          bytes.slice(slice.place + overhead, size)
        )
      if (isValid) Some(StoredSlice(slice.place + overhead, size)) else None
    }
  }

  /** The payloads of the entries from `firstEntryId` on, before the first that is not valid. */
  def validPrefix(
      bytes: ByteBuffer,
      slices: IndexedSeq[StoredSlice],
      ledgerId: Long,
      firstEntryId: Long,
      digest: EntryDigest
  ): IndexedSeq[StoredSlice] =
    slices.iterator.zipWithIndex
      .map { case (slice, place) =>
        payloadOf(bytes, slice, ledgerId, firstEntryId + place, digest)
      }
      .takeWhile(_.isDefined)
      .map(_.get)
      .toIndexedSeq
}
