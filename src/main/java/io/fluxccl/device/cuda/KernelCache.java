// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static java.nio.file.LinkOption.NOFOLLOW_LINKS;

import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.FileTime;
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
 * Compiled kernels on disk, one file an entry, shared by all processes of a user. The cache never
 * fails an operation. An entry that is damaged, unreadable or belongs to another user counts as
 * missing. If an entry can't be written, its kernels are compiled again the next time. A folder in
 * which other users may write is not used. Entries that were unused for a month are removed.
 */
final class KernelCache {
  /** Environment: the folder, instead of {@code $XDG_CACHE_HOME/fluxccl} or ~/.cache/fluxccl. */
  static final String VARIABLE = "FLUXCCL_CACHE_DIR";

  private static final Logger LOG = LoggerFactory.getLogger(KernelCache.class);
  private static final byte[] MAGIC = {'F', 'L', 'U', 'X', 'K', 'C', '1', '\n'};
  private static final int DIGEST_LENGTH = 32;
  private static final int HEADER_LENGTH = MAGIC.length + DIGEST_LENGTH;
  private static final int MOST_BYTES = 256 << 20;
  private static final Duration UNUSED_AFTER = Duration.ofDays(30);
  private static final String SUFFIX = ".kernel";

  /** A path at which no folder can be created, so nothing is stored. */
  private static final Path NOWHERE = Path.of("/dev/null");

  private final Path folder;
  private final AtomicBoolean pruned = new AtomicBoolean();
  private final AtomicBoolean refused = new AtomicBoolean();

  KernelCache(Path folder) {
    this.folder = folder;
  }

  /** Returns the cache in the folder that the environment determines. */
  static KernelCache of(Map<String, String> environment) {
    try {
      return new KernelCache(folder(environment));
    } catch (InvalidUsage e) {
      LOG.warn("compiled kernels are not kept: {}", e.getMessage());
      return new KernelCache(NOWHERE);
    }
  }

  private static Path folder(Map<String, String> environment) {
    String given = environment.getOrDefault(VARIABLE, "");
    if (!given.isEmpty()) {
      return LocalFiles.path(VARIABLE, given);
    }
    String shared = environment.getOrDefault("XDG_CACHE_HOME", "");
    // The XDG specification requires that relative paths are ignored.
    Path base =
        shared.startsWith("/")
            ? LocalFiles.path("XDG_CACHE_HOME", shared)
            : LocalFiles.path("user.home", System.getProperty("user.home")).resolve(".cache");
    return base.resolve("fluxccl");
  }

  /**
   * Returns the content stored under a key.
   *
   * @param key the key passed to {@link #put}
   * @return the content, or empty
   */
  Optional<byte[]> get(String key) {
    Path file = file(key);
    try (SecureDirectoryStream<Path> opened = open()) {
      byte[] all = LocalFiles.read(opened, file, LocalFiles.userOf("self"), MOST_BYTES);
      byte[] content = Arrays.copyOfRange(all, Math.min(HEADER_LENGTH, all.length), all.length);
      if (!Arrays.equals(all, entry(content))) {
        LOG.warn("{} in {} is damaged; compiling again", file, folder);
        return Optional.empty();
      }
      touch(opened, file);
      return Optional.of(content);
    } catch (IOException | RuntimeException e) {
      LOG.debug("{} in {} can't be read", file, folder, e);
      return Optional.empty();
    }
  }

  /** Keeps an entry from being pruned, unless the file system is read-only. */
  private static void touch(SecureDirectoryStream<Path> opened, Path file) {
    try {
      opened
          .getFileAttributeView(file, BasicFileAttributeView.class)
          .setTimes(FileTime.from(Instant.now()), null, null);
    } catch (IOException e) {
      LOG.debug("the time of {} can't be set", file, e);
    }
  }

  /** Opens the folder; only this user may write there, because kernels in it are run. */
  private SecureDirectoryStream<Path> open() throws IOException {
    return LocalFiles.open(folder, LocalFiles.userOf("self"), LocalFiles.OTHERS_WRITE);
  }

  /**
   * Stores content. A concurrent reader sees all of it or none.
   *
   * @param key letters and digits, computed from all inputs of the content
   * @param content the content to store
   */
  void put(String key, byte[] content) {
    try {
      if (!Files.isDirectory(LocalFiles.requireOwnLinks(folder))) {
        Files.createDirectories(
            folder,
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      }
      try (SecureDirectoryStream<Path> opened = open()) {
        LocalFiles.replace(opened, file(key), entry(content));
      }
    } catch (FileSystemException | RuntimeException e) {
      LOG.debug("compiled kernels are not kept: {} can't be written", folder, e);
    } catch (IOException e) {
      if (!refused.getAndSet(true)) {
        LOG.warn("compiled kernels are not kept: {}; set {}", e.getMessage(), VARIABLE);
      }
    }
    if (pruned.compareAndSet(false, true)) {
      prune();
    }
  }

  private Path file(String key) {
    return Path.of(key + SUFFIX);
  }

  /** Returns the content after a prefix by which a reader detects damage. */
  private static byte[] entry(byte[] content) {
    return ByteBuffer.allocate(HEADER_LENGTH + content.length)
        .put(MAGIC)
        .put(sha256().digest(content))
        .put(content)
        .array();
  }

  private void prune() {
    Instant oldest = Instant.now().minus(UNUSED_AFTER);
    try (SecureDirectoryStream<Path> opened = open()) {
      for (Path entry : opened) {
        Path name = entry.getFileName();
        if (name.toString().matches(".*\\.(kernel|tmp)")
            && opened
                .getFileAttributeView(name, BasicFileAttributeView.class, NOFOLLOW_LINKS)
                .readAttributes()
                .lastModifiedTime()
                .toInstant()
                .isBefore(oldest)) {
          opened.deleteFile(name);
        }
      }
    } catch (IOException | RuntimeException e) {
      LOG.debug("{} can't be tidied", folder, e);
    }
  }

  /** Returns an unambiguous key for a list of parts. */
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
