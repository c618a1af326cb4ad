package io.ledgerlog.spark

/** An error of a scan or of the catalog. `kind` is the name of the exception that the Python package
  * raises for it.
  */
final class LedgerLogException(val kind: String, val text: String, cause: Throwable = null)
    extends RuntimeException(s"$kind: $text", cause)

object LedgerLogException {
  val Configuration = "ConfigurationError"
  val DataLoss = "DataLossError"
  val DigestMismatch = "DigestMismatchError"
  val EntryUnknown = "EntryUnknownError"
  val LogExists = "LogExistsError"
  val LogNotFound = "LogNotFoundError"
  val MetadataFormat = "MetadataFormatError"
  val MetadataUnavailable = "MetadataUnavailableError"
  val Unauthorized = "UnauthorizedError"
  val WireFormat = "WireFormatError"

  def wireFormat(text: String, cause: Throwable = null): LedgerLogException =
    new LedgerLogException(WireFormat, text, cause)

  def configuration(text: String): LedgerLogException =
    new LedgerLogException(Configuration, text)

  def metadataFormat(text: String): LedgerLogException =
    new LedgerLogException(MetadataFormat, text)

  def dataLoss(
      log: String,
      ledgerId: Long,
      firstEntryId: Long,
      lastEntryId: Long,
      why: String
  ): LedgerLogException =
    new LedgerLogException(
      DataLoss,
      s"entries $firstEntryId to $lastEntryId of ledger $ledgerId, listed by log '$log', cannot " +
        s"be read: $why"
    )
}
