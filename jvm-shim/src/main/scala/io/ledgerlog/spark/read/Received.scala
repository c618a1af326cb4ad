package io.ledgerlog.spark.read

import org.apache.arrow.memory.ArrowBuf

/** The payload of one entry, in the bytes of an answer. The holder calls `release` once. */
final class Received(val entryId: Long, val bytes: ArrowBuf, val place: Int, val size: Int) {
  def release(): Unit = bytes.getReferenceManager.release(): Unit
}
