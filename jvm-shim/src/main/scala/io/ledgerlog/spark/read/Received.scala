package io.ledgerlog.spark.read

import io.ledgerlog.spark.wire.SlicedBody
import org.apache.arrow.memory.ArrowBuf

/** The payload of one entry, in the bytes of an answer. The holder calls `release` once.
  *
  * @param body
  *   where the columns are, if only some slices of the entry were read
  */
final class Received(
    val entryId: Long,
    val bytes: ArrowBuf,
    val place: Int,
    val size: Int,
    val body: Option[SlicedBody] = None
) {
  def release(): Unit = bytes.getReferenceManager.release(): Unit
}
