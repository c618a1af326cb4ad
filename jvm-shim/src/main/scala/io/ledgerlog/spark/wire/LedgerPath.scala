package io.ledgerlog.spark.wire

/** The paths of ledgers below the ledgers root (WIRE.md#znodes). */
object LedgerPath {
  private val LongFrom = 2147483647L

  def of(ledgerId: Long, isLong: Boolean): String =
    if (ledgerId < LongFrom && !isLong) {
      val digits = f"$ledgerId%010d"
      s"/${digits.substring(0, 2)}/${digits.substring(2, 6)}/L${digits.substring(6)}"
    } else {
      val digits = f"$ledgerId%019d"
      val parts = Seq((0, 3), (3, 7), (7, 11), (11, 15)).map { case (from, to) =>
        digits.substring(from, to)
      }
      s"/${parts.mkString("/")}/L${digits.substring(15)}"
    }
}
