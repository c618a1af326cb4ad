import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;

/** The content of entries and messages, which readers verify; payload.py has the same rule. */
final class Payloads {
  private Payloads() {}

  /** The only right payload of an entry, or of a message with this number. */
  static byte[] payload(String seed, long entry, String sizes) throws Exception {
    byte[] name = (seed + ":" + entry).getBytes(StandardCharsets.US_ASCII);
    byte[] digest = sha256(name);
    int size;
    if (sizes.equals("-")) {
      long drawn = 0;
      for (int at = 0; at < 4; at++) {
        drawn = drawn << 8 | (digest[at] & 0xFF);
      }
      size = (int) (40 + drawn % 2_960);
    } else {
      String[] all = sizes.split(",");
      size = Integer.parseInt(all[(int) (entry % all.length)]);
    }
    byte[] made = Arrays.copyOf(name, size);
    for (int at = name.length; at < size; at++) {
      made[at] = at == name.length ? (byte) '|' : digest[(at - name.length - 1) % digest.length];
    }
    return made;
  }

  static byte[] sha256(byte[] content) throws Exception {
    return MessageDigest.getInstance("SHA-256").digest(content);
  }
}
