package io.ledgerlog.spark.read

/** The kind of a request. */
sealed trait ReadMode

object ReadMode {

  /** Parts of consecutive entries. */
  case object Slices extends ReadMode

  /** Consecutive whole entries. */
  case object Batch extends ReadMode

  /** One whole entry. Only such answers show that an entry is absent. */
  case object Single extends ReadMode
}
