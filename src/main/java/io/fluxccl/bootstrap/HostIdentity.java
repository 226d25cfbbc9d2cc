// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.Text;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.time.Instant;
import java.util.TreeMap;
import java.util.concurrent.Callable;

/**
 * Identifies hosts and processes. Processes that can share memory have the same host hash: it
 * covers the host name, the boot of the kernel, the PID namespace and /dev/shm. So two containers
 * of one machine differ.
 *
 * @param hostHash equal for processes that share memory
 * @param processHash equal within one JVM only
 */
@Experimental
public record HostIdentity(long hostHash, long processHash) {
  /** The environment variable that replaces the system's description of the host. */
  public static final String VARIABLE = "FLUXCCL_HOSTID";

  private static final long JVM_RANDOM = new SecureRandom().nextLong();

  private static final HostIdentity CURRENT = of(System.getenv(VARIABLE));

  /** Returns this process's identity. */
  public static HostIdentity current() {
    return CURRENT;
  }

  static HostIdentity of(String override) {
    long hostHash = hash(override == null || override.isEmpty() ? describeHost() : override);
    ProcessHandle process = ProcessHandle.current();
    String started = process.info().startInstant().map(Instant::toString).orElse("");
    return new HostIdentity(
        hostHash, hash(process.pid() + "|" + started + "|" + hostHash + "|" + JVM_RANDOM));
  }

  @Override
  public String toString() {
    return Text.of("HostIdentity(host=%016x, process=%016x)", hostHash, processHash);
  }

  /** Returns the host's name, or an empty text. */
  static String hostName() {
    // The kernel's name for this host needs no name server, which might not answer for seconds.
    String name = textOf(() -> Files.readString(Path.of("/proc/sys/kernel/hostname")));
    return name.isEmpty() ? textOf(() -> InetAddress.getLocalHost().getHostName()) : name;
  }

  /** Returns a description of this process for messages, for example {@code pid 4711 on host-b}. */
  static String process() {
    return "pid " + ProcessHandle.current().pid() + " on " + hostName();
  }

  private static String describeHost() {
    return String.join(
        "|",
        hostName(),
        textOf(() -> Files.readString(Path.of("/proc/sys/kernel/random/boot_id"))),
        textOf(() -> Files.readSymbolicLink(Path.of("/proc/self/ns/pid"))),
        textOf(() -> new TreeMap<>(Files.readAttributes(Path.of("/dev/shm"), "unix:dev,ino"))));
  }

  /** Returns a text of the system, or an empty text if it can't be read. */
  private static String textOf(Callable<?> source) {
    try {
      return source.call().toString().strip();
    } catch (Exception e) {
      return "";
    }
  }

  static long hash(String text) {
    return sha256(text.getBytes(StandardCharsets.UTF_8)).getLong();
  }

  static ByteBuffer sha256(byte[] bytes) {
    try {
      return ByteBuffer.wrap(MessageDigest.getInstance("SHA-256").digest(bytes));
    } catch (NoSuchAlgorithmException e) {
      throw FluxCclException.from(e);
    }
  }
}
