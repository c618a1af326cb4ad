import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.Handle;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.ListLedgersResult;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteAdvHandle;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Apache BookKeeper's client behind line commands.
 *
 * <p>One command a line on standard input, one answer a line on standard output: {@code ok ...} or
 * {@code error NAME MESSAGE}. Lines that begin with {@code sent}, {@code acked} or {@code entry} are
 * reports on the way to an answer. {@code client_commands.py} answers the same commands with
 * ledgerlog's client.
 */
public final class InteropClient {
  private static final int CHUNK = 16;
  private static final int READ_ENTRIES = 64;
  private static final int BATCH_SIZE_BYTES = 1 << 20;
  private static final HexFormat HEX = HexFormat.of();

  private final BookKeeper client;
  private final PrintStream answers;
  private final Map<Long, WriteHandle> writers = new HashMap<>();
  private final Map<Long, WriteAdvHandle> scattered = new HashMap<>();
  private final Map<Long, ReadHandle> readers = new HashMap<>();

  private InteropClient(BookKeeper client, PrintStream answers) {
    this.client = client;
    this.answers = answers;
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
    System.setOut(System.err);
    ClientConfiguration settings = new ClientConfiguration();
    settings.setMetadataServiceUri(arguments[0]);
    settings.setUseV2WireProtocol(!Boolean.getBoolean("interop.version3"));
    settings.setThrottleValue(0);
    settings.setAddEntryTimeout(10);
    settings.setReadEntryTimeout(10);
    settings.setNettyMaxFrameSizeBytes(5_253_120);
    settings.setProperty("recoveryBatchReadEnabled", Boolean.getBoolean("interop.batches"));
    int exitCode = 0;
    try (BookKeeper client = BookKeeper.newBuilder(settings).build()) {
      answers.println("ok ready");
      InteropClient session = new InteropClient(client, answers);
      BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
      for (String line = commands.readLine(); line != null; line = commands.readLine()) {
        session.answer(line.split(" "));
      }
    } catch (Exception failure) {
      failure.printStackTrace();
      exitCode = 1;
    }
    Runtime.getRuntime().halt(exitCode);
  }

  private void answer(String[] words) {
    try {
      answers.println(("ok " + carryOut(words)).trim());
    } catch (Throwable failure) {
      Throwable cause = failure;
      while ((cause instanceof ExecutionException || cause instanceof CompletionException)
          && cause.getCause() != null) {
        cause = cause.getCause();
      }
      failure.printStackTrace();
      String message = String.valueOf(cause.getMessage()).replaceAll("\\s+", " ");
      answers.println("error " + cause.getClass().getSimpleName() + " " + message);
    }
  }

  private String carryOut(String[] words) throws Exception {
    switch (words[0]) {
      case "create":
        return create(words);
      case "append":
        return append(number(words[1]), words[2], number(words[3]), words[4], words[5]);
      case "scatter":
        return scatter(number(words[1]), words[2], number(words[3]));
      case "close":
        return close(number(words[1]));
      case "recover":
        return recover(number(words[1]), words[2], words[3]);
      case "open":
        return open(number(words[1]), words[2], words[3]);
      case "refresh":
        return Long.toString(readers.get(number(words[1])).readLastAddConfirmed());
      case "read":
        return read(number(words[1]), number(words[2]), number(words[3]), words[4]);
      case "metadata":
        return describe(client.getLedgerMetadata(number(words[1])).get());
      case "delete":
        client.newDeleteLedgerOp().withLedgerId(number(words[1])).execute().get();
        return "";
      case "list":
        return list();
      default:
        throw new IllegalArgumentException("no command " + words[0]);
    }
  }

  /** create E QW QA DIGEST PASSWORD CUSTOM ID: ID is "-" unless entries come in the caller's order. */
  private String create(String[] words) throws Exception {
    CreateBuilder builder =
        client
            .newCreateLedgerOp()
            .withEnsembleSize(Integer.parseInt(words[1]))
            .withWriteQuorumSize(Integer.parseInt(words[2]))
            .withAckQuorumSize(Integer.parseInt(words[3]))
            .withDigestType(DigestType.valueOf(words[4]))
            .withPassword(bytes(words[5]))
            .withCustomMetadata(custom(words[6]));
    if (words[7].equals("-")) {
      WriteHandle handle = builder.execute().get();
      writers.put(handle.getId(), handle);
      return Long.toString(handle.getId());
    }
    WriteAdvHandle handle = builder.makeAdv().withLedgerId(number(words[7])).execute().get();
    scattered.put(handle.getId(), handle);
    return Long.toString(handle.getId());
  }

  /** append ID SEED COUNT SIZES OUTSTANDING: reports "sent END" (exclusive) before, "acked N" after. */
  private String append(long id, String seed, long count, String sizes, String outstanding)
      throws Exception {
    WriteHandle handle = writers.get(id);
    int window = Integer.parseInt(outstanding);
    Semaphore room = new Semaphore(window);
    AtomicReference<Throwable> failure = new AtomicReference<>();
    long first = handle.getLastAddPushed() + 1;
    for (long entry = first; entry < first + count && failure.get() == null; entry++) {
      room.acquire();
      if ((entry - first) % CHUNK == 0) {
        answers.println("sent " + Math.min(entry + CHUNK, first + count));
      }
      handle
          .appendAsync(Payloads.payload(seed, entry, sizes))
          .whenComplete(
              (acknowledged, error) -> {
                if (error == null) {
                  answers.println("acked " + acknowledged);
                } else {
                  failure.compareAndSet(null, error);
                }
                room.release();
              });
    }
    room.acquire(window);
    if (failure.get() != null) {
      throw new ExecutionException(failure.get());
    }
    return handle.getLastAddConfirmed() + " " + handle.getLength();
  }

  /** scatter ID SEED COUNT: every eight entries in reverse order, as an advanced handle may. */
  private String scatter(long id, String seed, long count) throws Exception {
    WriteAdvHandle handle = scattered.get(id);
    List<CompletableFuture<Long>> adds = new ArrayList<>();
    answers.println("sent " + count);
    for (long block = 0; block < count; block += 8) {
      for (long entry = Math.min(block + 8, count) - 1; entry >= block; entry--) {
        adds.add(handle.writeAsync(entry, Payloads.payload(seed, entry, "-")));
      }
    }
    AtomicLong last = new AtomicLong(-1);
    for (CompletableFuture<Long> add : adds) {
      last.accumulateAndGet(add.get(), Math::max);
    }
    answers.println("acked " + last.get());
    return last.get() + " " + handle.getLength();
  }

  private String close(long id) throws Exception {
    Handle handle = writers.containsKey(id) ? writers.remove(id) : scattered.remove(id);
    ReadHandle end = (ReadHandle) handle;
    handle.close();
    return end.getLastAddConfirmed() + " " + end.getLength();
  }

  private String recover(long id, String digest, String password) throws Exception {
    try (ReadHandle handle = handle(id, digest, password, true)) {
      return handle.getLastAddConfirmed() + " " + handle.getLength();
    }
  }

  private String open(long id, String digest, String password) throws Exception {
    ReadHandle handle = handle(id, digest, password, false);
    readers.put(id, handle);
    return Long.toString(handle.getLastAddConfirmed());
  }

  private ReadHandle handle(long id, String digest, String password, boolean recovers)
      throws Exception {
    return client
        .newOpenLedgerOp()
        .withLedgerId(id)
        .withDigestType(DigestType.valueOf(digest))
        .withPassword(bytes(password))
        .withRecovery(recovers)
        .execute()
        .get();
  }

  /** read ID FIRST LAST single|batches: reports "entry ID SIZE SHA256" for each. */
  private String read(long id, long first, long last, String how) throws Exception {
    ReadHandle handle = readers.get(id);
    long next = first;
    while (next <= last) {
      int count = (int) Math.min(READ_ENTRIES, last - next + 1);
      try (LedgerEntries entries =
          how.equals("batches")
              ? handle.batchReadAsync(next, count, BATCH_SIZE_BYTES).get()
              : handle.readAsync(next, next + count - 1).get()) {
        long before = next;
        for (LedgerEntry entry : entries) {
          byte[] content = entry.getEntryBytes();
          answers.println(
              "entry " + entry.getEntryId() + " " + content.length + " "
                  + HEX.formatHex(Payloads.sha256(content)));
          next = entry.getEntryId() + 1;
        }
        if (next == before) {
          throw new IllegalStateException("no entry " + next);
        }
      }
    }
    return "";
  }

  private String list() throws Exception {
    try (ListLedgersResult ledgers = client.newListLedgersOp().execute().get()) {
      List<String> ids = new ArrayList<>();
      ledgers.toIterable().forEach(id -> ids.add(Long.toString(id)));
      return String.join(" ", ids);
    }
  }

  private static String describe(LedgerMetadata metadata) {
    String fragments =
        metadata.getAllEnsembles().entrySet().stream()
            .map(
                entry ->
                    "[" + entry.getKey() + ",["
                        + entry.getValue().stream()
                            .map(bookie -> "\"" + bookie + "\"")
                            .collect(Collectors.joining(","))
                        + "]]")
            .collect(Collectors.joining(","));
    String custom =
        metadata.getCustomMetadata().entrySet().stream()
            .map(entry -> "\"" + entry.getKey() + "\":\"" + HEX.formatHex(entry.getValue()) + "\"")
            .collect(Collectors.joining(","));
    boolean closed = metadata.isClosed();
    return String.format(
        "{\"quorum\":[%d,%d,%d],\"state\":\"%s\",\"last_entry_id\":%d,\"length\":%d,"
            + "\"digest\":\"%s\",\"password\":\"%s\",\"created_ms\":%d,"
            + "\"format\":%d,\"custom\":{%s},\"fragments\":[%s]}",
        metadata.getEnsembleSize(),
        metadata.getWriteQuorumSize(),
        metadata.getAckQuorumSize(),
        metadata.getState(),
        closed ? metadata.getLastEntryId() : -1,
        closed ? metadata.getLength() : 0,
        metadata.getDigestType(),
        HEX.formatHex(metadata.getPassword()),
        metadata.getCtime(),
        metadata.getMetadataFormatVersion(),
        custom,
        fragments);
  }

  private static Map<String, byte[]> custom(String word) {
    Map<String, byte[]> found = new HashMap<>();
    if (!word.equals("-")) {
      for (String pair : word.split(",")) {
        String[] parts = pair.split("=", 2);
        found.put(parts[0], HEX.parseHex(parts[1]));
      }
    }
    return found;
  }

  private static byte[] bytes(String hex) {
    return hex.equals("-") ? new byte[0] : HEX.parseHex(hex);
  }

  private static long number(String word) {
    return Long.parseLong(word);
  }
}
