package io.ledgerlog.spark.wire

/** The place and size of a stored entry, or of a part of it, in larger bytes. */
final case class StoredSlice(place: Int, size: Int)
