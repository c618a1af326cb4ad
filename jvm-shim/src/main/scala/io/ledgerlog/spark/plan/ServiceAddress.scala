package io.ledgerlog.spark.plan

/** The metadata of the cluster in ZooKeeper.
  *
  * @param root
  *   the node of all ledgers, such as `/ledgers`
  * @param paths
  *   the nodes of the ledgers that are read
  */
final case class ServiceAddress(connectString: String, root: String, paths: Map[Long, String])
