package io.ledgerlog.spark.wire

/** A stored entry, or its payload, in the bytes of an answer. */
final case class StoredSlice(place: Int, size: Int)
