package io.ledgerlog.spark.wire

/** The first fields of an answer to READ or BATCH_READ. */
final case class AnswerHead(operation: Byte, code: Code, ledgerId: Long, entryId: Long)
