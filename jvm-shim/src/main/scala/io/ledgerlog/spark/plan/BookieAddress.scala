package io.ledgerlog.spark.plan

/** The address of a bookie, and whether it reads slices of entries (READ_SLICES). */
final case class BookieAddress(host: String, port: Int, takesSlices: Boolean = false)
