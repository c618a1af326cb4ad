package io.ledgerlog.spark.read

import io.ledgerlog.spark.wire.Code

/** The answer of a bookie to a request. `entries` are consecutive, from the first requested one. */
final case class Answer(request: Request, code: Code, entries: Seq[Received], sizeBytes: Int) {
  def release(): Unit = entries.foreach(_.release())
}
