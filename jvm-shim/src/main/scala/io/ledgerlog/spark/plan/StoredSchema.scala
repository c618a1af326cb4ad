package io.ledgerlog.spark.plan

/** The schema of stored rows, and the origin of each column of the scan.
  *
  * @param message
  *   the Arrow schema message
  * @param origins
  *   for each column of the scan the place of the stored column, `Missing`, or a metadata column
  * @param filter
  *   the filter of the query, if it may leave out entries
  */
final case class StoredSchema(
    log: String,
    schemaId: Int,
    message: Array[Byte],
    origins: Seq[ColumnOrigin],
    filter: Option[RowFilter] = None
)
