package org.apache.spark.sql.ledgerlog

/** Whether a write replaces the rows of a log, and whether it is the sink of a stream. */
final case class WriteMode(isOverwrite: Boolean, isStream: Boolean)
