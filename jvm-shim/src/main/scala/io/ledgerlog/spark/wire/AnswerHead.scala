package io.ledgerlog.spark.wire

/** The first fields of an answer to READ, BATCH_READ or READ_SLICES. */
final case class AnswerHead(operation: Byte, code: Code, ledgerId: Long, entryId: Long)
