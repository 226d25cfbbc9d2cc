// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.LocalFiles;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Compiled kernels on disk, one file an entry, shared by all processes of a user. Nothing here ever
 * fails an operation: what can't be read, is damaged or belongs to another user is not there, and
 * what can't be written is compiled again the next time. Entries that were unused for a month are
 * removed.
 */
final class KernelCache {
  /** Environment: the folder, instead of {@code $XDG_CACHE_HOME/fluxccl} or ~/.cache/fluxccl. */
  static final String VARIABLE = "FLUXCCL_CACHE_DIR";

  private static final Logger LOG = LoggerFactory.getLogger(KernelCache.class);
  private static final byte[] MAGIC = {'F', 'L', 'U', 'X', 'K', 'C', '1', '\n'};
  private static final int DIGEST_LENGTH = 32;
  private static final int HEADER_LENGTH = MAGIC.length + DIGEST_LENGTH;
  private static final long MOST_BYTES = 256L << 20;
  private static final Duration UNUSED_AFTER = Duration.ofDays(30);
  private static final String SUFFIX = ".kernel";

  private final Path folder;
  private final AtomicBoolean pruned = new AtomicBoolean();

  KernelCache(Path folder) {
    this.folder = folder;
  }

  /** Returns the cache where the environment says. */
  static KernelCache of(Map<String, String> environment) {
    String given = environment.getOrDefault(VARIABLE, "");
    if (!given.isEmpty()) {
      return new KernelCache(LocalFiles.path(VARIABLE, given));
    }
    String shared = environment.getOrDefault("XDG_CACHE_HOME", "");
    // The specification has relative paths ignored.
    Path base =
        shared.startsWith("/")
            ? Path.of(shared)
            : LocalFiles.path("user.home", System.getProperty("user.home")).resolve(".cache");
    return new KernelCache(base.resolve("fluxccl"));
  }

  /**
   * Returns what was put under a key.
   *
   * @param key as {@link #put} got it
   * @return the content, or empty
   */
  Optional<byte[]> get(String key) {
    Path file = file(key);
    try {
      if (!Files.isRegularFile(file) || Files.size(file) > MOST_BYTES || !isOurs(file)) {
        return Optional.empty();
      }
      byte[] all = Files.readAllBytes(file);
      byte[] content = Arrays.copyOfRange(all, Math.min(HEADER_LENGTH, all.length), all.length);
      if (!Arrays.equals(all, entry(content))) {
        LOG.warn("{} is damaged; compiling again", file);
        return Optional.empty();
      }
      file.toFile().setLastModified(System.currentTimeMillis()); // keeps it if that is possible
      return Optional.of(content);
    } catch (IOException | RuntimeException e) {
      LOG.debug("{} can't be read", file, e);
      return Optional.empty();
    }
  }

  /**
   * Keeps content. A concurrent reader sees all of it or none.
   *
   * @param key letters and digits that stand for everything the content depends on
   * @param content what to keep
   */
  void put(String key, byte[] content) {
    Path temporary = null;
    try {
      Files.createDirectories(
          folder,
          PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      temporary = Files.createTempFile(folder, "new-", ".tmp");
      Files.write(temporary, entry(content));
      Files.move(temporary, file(key), StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException | RuntimeException e) {
      LOG.debug("compiled kernels are not kept: {} can't be written", folder, e);
      if (temporary != null) {
        temporary.toFile().delete();
      }
    }
    if (pruned.compareAndSet(false, true)) {
      prune();
    }
  }

  private Path file(String key) {
    return folder.resolve(key + SUFFIX);
  }

  /** Returns content with what proves that it is intact in front. */
  private static byte[] entry(byte[] content) {
    return ByteBuffer.allocate(HEADER_LENGTH + content.length)
        .put(MAGIC)
        .put(sha256().digest(content))
        .put(content)
        .array();
  }

  /** In a folder that others can write to, their files are not code to be run. */
  private static boolean isOurs(Path file) throws IOException {
    return Files.getAttribute(file, "unix:uid").equals(Files.getAttribute(SELF, "unix:uid"));
  }

  private static final Path SELF = Path.of("/proc/self");

  private void prune() {
    Instant oldest = Instant.now().minus(UNUSED_AFTER);
    try (DirectoryStream<Path> entries = Files.newDirectoryStream(folder, "*.{kernel,tmp}")) {
      for (Path entry : entries) {
        if (Files.getLastModifiedTime(entry).toInstant().isBefore(oldest)) {
          entry.toFile().delete();
        }
      }
    } catch (IOException | RuntimeException e) {
      LOG.debug("{} can't be tidied", folder, e);
    }
  }

  /** Returns a key out of parts, none of which can pass for another. */
  static String key(Iterable<String> parts) {
    MessageDigest digest = sha256();
    for (String part : parts) {
      byte[] bytes = part.getBytes(StandardCharsets.UTF_8);
      digest.update(ByteBuffer.allocate(Integer.BYTES).putInt(bytes.length).array());
      digest.update(bytes);
    }
    return HexFormat.of().formatHex(digest.digest());
  }

  private static MessageDigest sha256() {
    try {
      return MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every JVM has SHA-256", e);
    }
  }
}
