import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.PulsarClusterMetadataSetup;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;

/**
 * A Pulsar broker with a client of its own, behind line commands as those of {@code InteropClient}.
 *
 * <p>{@code produce TOPIC SEED FIRST COUNT} sends COUNT messages with the numbers FIRST, FIRST + 1
 * and so on. It reports {@code sent END} (exclusive) before, and {@code acked N} after.
 * {@code consume TOPIC COUNT} reads at least COUNT messages from the beginning of the topic, and all
 * further ones. It reports each message as {@code entry NUMBER SIZE SHA256}.
 */
public final class PulsarBroker {
  private static final int OUTSTANDING = 200;
  private static final int REPORT_EVERY = 16;
  private static final int WAIT_SECONDS = 60;
  private static final HexFormat HEX = HexFormat.of();

  private final PulsarClient client;
  private final PrintStream answers;

  private PulsarBroker(PulsarClient client, PrintStream answers) {
    this.client = client;
    this.answers = answers;
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
    System.setOut(System.err);
    String servers = arguments[0];
    int exitCode = 0;
    try {
      initialize(servers);
      PulsarService broker = new PulsarService(settings(servers));
      broker.start();
      try (PulsarClient client =
          PulsarClient.builder().serviceUrl(broker.getBrokerServiceUrl()).build()) {
        answers.println("ok ready");
        PulsarBroker session = new PulsarBroker(client, answers);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
          session.answer(line.split(" "));
        }
      }
    } catch (Exception failure) {
      failure.printStackTrace();
      exitCode = 1;
    }
    Runtime.getRuntime().halt(exitCode);
  }

  private static void initialize(String servers) throws Exception {
    PulsarClusterMetadataSetup.main(
        new String[] {
          "--cluster", "interop",
          "--metadata-store", "zk:" + servers,
          "--configuration-metadata-store", "zk:" + servers,
          "--existing-bk-metadata-service-uri", "zk+hierarchical://" + servers + "/ledgers",
          "--broker-service-url", "pulsar://127.0.0.1:6650",
          "--web-service-url", "http://127.0.0.1:8080",
        });
  }

  private static ServiceConfiguration settings(String servers) {
    ServiceConfiguration settings = new ServiceConfiguration();
    settings.setClusterName("interop");
    settings.setAdvertisedAddress("127.0.0.1");
    settings.setMetadataStoreUrl("zk:" + servers);
    settings.setConfigurationMetadataStoreUrl("zk:" + servers);
    settings.setBookkeeperMetadataServiceUri("zk+hierarchical://" + servers + "/ledgers");
    settings.setBrokerServicePort(Optional.of(0));
    settings.setWebServicePort(Optional.of(0));
    settings.setManagedLedgerDefaultEnsembleSize(3);
    settings.setManagedLedgerDefaultWriteQuorum(3);
    settings.setManagedLedgerDefaultAckQuorum(2);
    settings.setManagedLedgerMaxEntriesPerLedger(1_000);
    settings.setManagedLedgerMinLedgerRolloverTimeMinutes(0);
    settings.setManagedLedgerCacheSizeMB(0);
    settings.setDefaultRetentionTimeInMinutes(-1);
    settings.setDefaultRetentionSizeInMB(-1);
    settings.setBrokerShutdownTimeoutMs(0);
    settings.setLoadBalancerEnabled(false);
    settings.setFunctionsWorkerEnabled(false);
    settings.setTransactionCoordinatorEnabled(false);
    settings.setSystemTopicEnabled(false);
    settings.setTopicLevelPoliciesEnabled(false);
    settings.setNumIOThreads(2);
    settings.setNumHttpServerThreads(4);
    settings.setZooKeeperSessionTimeoutMillis(10_000);
    return settings;
  }

  private void answer(String[] words) {
    try {
      answers.println(("ok " + carryOut(words)).trim());
    } catch (Throwable failure) {
      failure.printStackTrace();
      answers.println(
          "error " + failure.getClass().getSimpleName() + " "
              + String.valueOf(failure.getMessage()).replace('\n', ' '));
    }
  }

  private String carryOut(String[] words) throws Exception {
    switch (words[0]) {
      case "produce":
        return produce(words[1], words[2], Long.parseLong(words[3]), Long.parseLong(words[4]));
      case "consume":
        return consume(words[1], Long.parseLong(words[2]));
      default:
        throw new IllegalArgumentException("unknown command " + words[0]);
    }
  }

  private String produce(String topic, String seed, long first, long count) throws Exception {
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Semaphore room = new Semaphore(OUTSTANDING);
    try (Producer<byte[]> producer =
        client.newProducer().topic(topic).enableBatching(false).maxPendingMessages(OUTSTANDING)
            .sendTimeout(WAIT_SECONDS, TimeUnit.SECONDS).blockIfQueueFull(true).create()) {
      for (long number = first; number < first + count && failure.get() == null; number++) {
        room.acquire();
        if (number % REPORT_EVERY == 0) {
          answers.println("sent " + (number + REPORT_EVERY));
        }
        long sent = number;
        CompletableFuture<MessageId> done = producer.sendAsync(Payloads.payload(seed, number, "-"));
        done.whenComplete(
            (id, error) -> {
              room.release();
              if (error != null) {
                failure.compareAndSet(null, error);
              } else {
                answers.println("acked " + sent);
              }
            });
      }
      room.acquire(OUTSTANDING);
    }
    if (failure.get() != null) {
      throw new Exception(failure.get());
    }
    return "";
  }

  private String consume(String topic, long count) throws Exception {
    long read = 0;
    try (Reader<byte[]> reader =
        client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
      while (read < count || reader.hasMessageAvailable()) {
        Message<byte[]> message = reader.readNext(WAIT_SECONDS, TimeUnit.SECONDS);
        if (message == null) {
          throw new Exception("no message after " + read);
        }
        byte[] content = message.getData();
        answers.println(
            "entry " + number(content) + " " + content.length + " "
                + HEX.formatHex(Payloads.sha256(content)));
        read++;
      }
    }
    return Long.toString(read);
  }

  /** The number in the content of a message; -1 if it has none. */
  private static long number(byte[] content) {
    String name = new String(content, StandardCharsets.ISO_8859_1).split("\\|", 2)[0];
    try {
      return Long.parseLong(name.substring(name.lastIndexOf(':') + 1));
    } catch (NumberFormatException damaged) {
      return -1;
    }
  }
}
