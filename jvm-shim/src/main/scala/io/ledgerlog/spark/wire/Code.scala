package io.ledgerlog.spark.wire

/** The outcome of one request to one bookie, as in `ledgerlog_spark/model.py`. */
sealed abstract class Code(val text: String, val isAbsent: Boolean = false)

object Code {
  case object Ok extends Code("ok")
  case object NoLedger extends Code("no_ledger", isAbsent = true)
  case object NoEntry extends Code("no_entry", isAbsent = true)
  case object BadRequest extends Code("bad_request")
  case object IoError extends Code("io_error")
  case object Unauthorized extends Code("unauthorized")
  case object BadVersion extends Code("bad_version")
  case object Fenced extends Code("fenced")
  case object ReadOnly extends Code("read_only")
  case object Busy extends Code("busy")
  case object DigestMismatch extends Code("digest_mismatch")
  case object Timeout extends Code("timeout")
  case object Unavailable extends Code("unavailable")

  private val byNumber: Map[Int, Code] = Map(
    0 -> Ok,
    1 -> NoLedger,
    2 -> NoEntry,
    100 -> BadRequest,
    101 -> IoError,
    102 -> Unauthorized,
    103 -> BadVersion,
    104 -> Fenced,
    105 -> ReadOnly,
    106 -> Busy
  )

  /** The code of an answer (WIRE.md#answer-codes). An unknown number counts as `IoError`. */
  def ofNumber(number: Int): Code = byNumber.getOrElse(number, IoError)
}
