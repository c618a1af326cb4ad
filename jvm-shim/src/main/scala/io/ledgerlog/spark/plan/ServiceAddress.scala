package io.ledgerlog.spark.plan

/** The metadata of the cluster in ZooKeeper.
  *
  * @param isLong
  *   whether the paths of all ledgers have nineteen digits
  */
final case class ServiceAddress(connectString: String, root: String, isLong: Boolean)
