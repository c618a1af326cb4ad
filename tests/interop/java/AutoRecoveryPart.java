import java.io.File;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.replication.AuditorElector;
import org.apache.bookkeeper.replication.ReplicationWorker;

/**
 * One part of Apache BookKeeper's auto-recovery, which runs both parts: {@code auditor CONF} or
 * {@code worker CONF}.
 */
public final class AutoRecoveryPart {
  private AutoRecoveryPart() {}

  public static void main(String[] arguments) throws Exception {
    ServerConfiguration settings = new ServerConfiguration();
    settings.loadConf(new File(arguments[1]).toURI().toURL());
    switch (arguments[0]) {
      case "auditor":
        String id = settings.getAdvertisedAddress() + ":" + settings.getBookiePort();
        new AuditorElector(id, settings).start().get();
        break;
      case "worker":
        new ReplicationWorker(settings).start();
        break;
      default:
        throw new IllegalArgumentException("no part " + arguments[0]);
    }
    Thread.currentThread().join();
  }
}
