package io.ledgerlog.spark.plan

final case class BookieAddress(host: String, port: Int)
