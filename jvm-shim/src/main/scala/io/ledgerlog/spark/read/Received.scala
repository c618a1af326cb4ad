package io.ledgerlog.spark.read

import io.ledgerlog.spark.wire.SlicedBody
import org.apache.arrow.memory.ArrowBuf

/** The payload of one entry, in the bytes of an answer. The holder calls `release` once.
  *
  * @param body
  *   if only slices of the entry were read, the body that these make
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
