package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.time.Instant;

/**
 * Tells hosts and processes apart. Two processes have one host hash when they can share memory: the
 * same boot of the same kernel, the same process ids and the same /dev/shm, so two containers of
 * one machine differ.
 */
public final class HostIdentity {
  /** The environment variable that replaces all that is asked of the system. */
  public static final String VARIABLE = "FLUXCCL_HOSTID";

  private static final long JVM_RANDOM = new SecureRandom().nextLong();

  private final long hostHash;
  private final long processHash;

  HostIdentity(long hostHash, long processHash) {
    this.hostHash = hostHash;
    this.processHash = processHash;
  }

  /** This process's identity. */
  public static HostIdentity current() {
    return Current.IDENTITY;
  }

  static HostIdentity of(String override) {
    long hostHash = hash(override == null || override.isEmpty() ? describeHost() : override);
    ProcessHandle process = ProcessHandle.current();
    String started = process.info().startInstant().map(Instant::toString).orElse("");
    return new HostIdentity(
        hostHash, hash(process.pid() + "|" + started + "|" + hostHash + "|" + JVM_RANDOM));
  }

  /** Equal for processes that share memory. */
  public long hostHash() {
    return hostHash;
  }

  /** Equal within one JVM only. */
  public long processHash() {
    return processHash;
  }

  @Override
  public String toString() {
    return String.format("HostIdentity(host=%016x, process=%016x)", hostHash, processHash);
  }

  private static String describeHost() {
    return String.join(
        "|",
        hostName(),
        contentOf("/proc/sys/kernel/random/boot_id"),
        linkOf("/proc/self/ns/pid"),
        attributesOf("/dev/shm"));
  }

  // The kernel's name for this host needs no name server, which might not answer for seconds.
  private static String hostName() {
    String name = contentOf("/proc/sys/kernel/hostname");
    if (!name.isEmpty()) {
      return name;
    }
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (IOException e) {
      return "";
    }
  }

  private static String contentOf(String file) {
    try {
      return Files.readString(Path.of(file)).strip();
    } catch (IOException | SecurityException e) {
      return "";
    }
  }

  private static String linkOf(String file) {
    try {
      return Files.readSymbolicLink(Path.of(file)).toString();
    } catch (IOException | UnsupportedOperationException | SecurityException e) {
      return "";
    }
  }

  private static String attributesOf(String file) {
    try {
      return Files.readAttributes(Path.of(file), "unix:dev,ino").entrySet().stream()
          .sorted(java.util.Map.Entry.comparingByKey())
          .toList()
          .toString();
    } catch (IOException | RuntimeException e) {
      return "";
    }
  }

  static long hash(String text) {
    try {
      byte[] digest =
          MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
      return java.nio.ByteBuffer.wrap(digest).getLong();
    } catch (NoSuchAlgorithmException e) {
      throw FluxCclException.from(e);
    }
  }

  private static final class Current {
    static final HostIdentity IDENTITY = of(System.getenv(VARIABLE));
  }
}
