// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * A master and two workers of Spark, each a process of this machine with the jars of Maven. A
 * worker that dies is replaced.
 */
final class StandaloneCluster implements AutoCloseable {
  private static final String LOOPBACK = "127.0.0.1";

  private final Path folder;
  private final String address;
  private final Process master;
  // Guarded by this.
  private final List<Process> workers = new ArrayList<>();
  private boolean closed;

  StandaloneCluster() {
    try {
      folder = Files.createTempDirectory("fluxccl-spark");
      address = LOOPBACK + ":" + freePort();
      String port = address.substring(address.indexOf(':') + 1);
      master = start("master.Master", "--port", port);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    startWorker();
    startWorker();
  }

  /** Returns a port that the system gives to no socket by itself, so that it stays free. */
  private static int freePort() throws IOException {
    while (true) {
      int port = ThreadLocalRandom.current().nextInt(30_000, 32_000);
      try (ServerSocket probe = new ServerSocket(port, 1, InetAddress.getByName(LOOPBACK))) {
        return probe.getLocalPort();
      } catch (BindException taken) {
        continue;
      }
    }
  }

  /** Returns a command that runs a class of Spark. */
  static List<String> java(String name, String... arguments) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(
        List.of("@jvm-options", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    command.add("-Dlog4j2.configurationFile=target/classes/log4j2.properties");
    command.addAll(List.of("-cp", System.getenv("SPARK_HOME") + "/jars/*"));
    command.add("org.apache.spark.deploy." + name);
    command.addAll(List.of(arguments));
    return command;
  }

  private Process start(String name, String... arguments) throws IOException {
    List<String> command = java(name, "--host", LOOPBACK, "--webui-port", "0");
    command.addAll(List.of(arguments));
    ProcessBuilder process = new ProcessBuilder(command).inheritIO();
    process.environment().put("SPARK_LOCAL_DIRS", folder.toString());
    return process.start();
  }

  /** With slots for two tasks. It asks for the master until that listens. */
  private synchronized void startWorker() {
    if (closed) {
      return;
    }
    String work = folder.resolve("worker" + workers.size()).toString();
    try {
      Process worker = start("worker.Worker", "-c", "2", "-m", "1g", "-d", work, url());
      worker.onExit().thenRun(this::startWorker);
      workers.add(worker);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  String url() {
    return "spark://" + address;
  }

  /** Returns how many have been started. */
  synchronized int workers() {
    return workers.size();
  }

  /**
   * Kills a process from inside the executor of which it is, or has started, and waits for that.
   */
  static void kill(long pid) {
    try {
      new ProcessBuilder("kill", "-9", Long.toString(pid)).start().waitFor();
      // An executor ends soon after its worker.
      new CountDownLatch(1).await(300, TimeUnit.SECONDS);
    } catch (IOException | InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  @Override
  public void close() {
    List<Process> all = new ArrayList<>(List.of(master));
    synchronized (this) {
      closed = true;
      all.addAll(0, workers);
    }
    // Workers end their executors.
    all.forEach(Process::destroy);
    for (Process each : all) {
      try {
        if (!each.waitFor(120, TimeUnit.SECONDS)) {
          each.destroyForcibly().waitFor();
        }
      } catch (InterruptedException e) {
        each.destroyForcibly();
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Deletes its files. Call it after all executors have ended. */
  void delete() throws IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
    }
  }
}
