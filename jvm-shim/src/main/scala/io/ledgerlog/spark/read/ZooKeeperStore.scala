package io.ledgerlog.spark.read

import java.util.concurrent.{CountDownLatch, TimeUnit}

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.{BookieAddress, LedgerRecord, ServiceAddress}
import io.ledgerlog.spark.wire.{LedgerMetadata, ServiceInfo}
import org.apache.zookeeper.{KeeperException, WatchedEvent, Watcher, ZooKeeper}

/** The cluster's metadata in ZooKeeper. The first call connects. */
final class ZooKeeperStore(service: ServiceAddress, settings: ReadSettings) extends LedgerStore {
  private var session: Option[ZooKeeper] = None

  override def ledger(ledgerId: Long): Option[LedgerRecord] = {
    sync()
    data(service.paths(ledgerId)).map(LedgerMetadata.decode)
  }

  override def bookie(bookieId: String): Option[BookieAddress] =
    Seq("available", "available/readonly", "available").iterator
      .map(folder => data(s"${service.root}/$folder/$bookieId"))
      .collectFirst { case Some(record) => ServiceInfo.decode(bookieId, record) }

  override def close(): Unit = {
    session.foreach(_.close(settings.metadataTimeoutMs))
    session = None
  }

  /** Make later reads at least as new as this moment: a server of ZooKeeper may lag. */
  private def sync(): Unit = {
    val done = new CountDownLatch(1)
    connected().sync(service.root, (_: Int, _: String, _: AnyRef) => done.countDown(), null)
    if (!done.await(settings.metadataTimeoutMs.toLong, TimeUnit.MILLISECONDS)) throw unavailable()
  }

  private def data(path: String): Option[Array[Byte]] =
    try Some(connected().getData(path, false, null))
    catch {
      case _: KeeperException.NoNodeException => None
      case error: KeeperException => throw unavailable(error)
    }

  private def connected(): ZooKeeper = session.getOrElse {
    val isConnected = new CountDownLatch(1)
    val watcher: Watcher = (event: WatchedEvent) =>
      if (event.getState == Watcher.Event.KeeperState.SyncConnected) isConnected.countDown()
    val made = new ZooKeeper(service.connectString, settings.metadataTimeoutMs, watcher)
    session = Some(made)
    if (!isConnected.await(settings.metadataTimeoutMs.toLong, TimeUnit.MILLISECONDS)) {
      close()
      throw unavailable()
    }
    made
  }

  private def unavailable(cause: Throwable = null): LedgerLogException =
    new LedgerLogException(
      LedgerLogException.MetadataUnavailable,
      s"the metadata store at ${service.connectString} did not answer within " +
        s"${settings.metadataTimeoutMs} ms: check that ZooKeeper runs and can be reached",
      cause
    )
}
