// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import io.fluxccl.FluxCclException;
import io.fluxccl.LocalFiles;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.NonblockingThread;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * Publishes a network's connections through JMX and in a file that is written once a second. A
 * signal would not do: in a foreign process the signals belong to the application. Thread-safe.
 */
public final class ConnectionTable implements ConnectionsMXBean, AutoCloseable {
  private static final long PERIOD_NANOS = 1_000_000_000;
  private static final AtomicInteger NUMBER = new AtomicInteger();

  private final Supplier<List<ConnectionState>> connections;
  private final Path file;
  private final ObjectName name;
  private final Thread writer;
  private final Lifecycle lifecycle = new Lifecycle(this);

  /**
   * Publishes the connections until this table is closed.
   *
   * @param network the network's name, which is part of the bean's name
   * @param options where the table is published; with {@link TableOptions#NONE} there is neither a
   *     table nor a thread
   * @param connections supplies the rows; any thread may call it
   * @throws TransportFailure if the bean can't be registered
   */
  public ConnectionTable(
      String network, TableOptions options, Supplier<List<ConnectionState>> connections) {
    this.connections = connections;
    file =
        options.file() == null
            ? null
            : Path.of(options.file() + "." + ProcessHandle.current().pid());
    name = options.jmx() ? register(network) : null;
    if (file == null) {
      writer = null;
    } else {
      write();
      writer = new NonblockingThread(this::run, "fluxccl-net-table");
      writer.start();
    }
  }

  private ObjectName register(String network) {
    try {
      // The number keeps names unique: more than one plugin may be open.
      ObjectName free =
          new ObjectName(
              Text.of(
                  "io.fluxccl:type=Connections,network=%s,number=%s",
                  network, NUMBER.incrementAndGet()));
      ManagementFactory.getPlatformMBeanServer().registerMBean(this, free);
      return free;
    } catch (JMException e) {
      throw new TransportFailure(
          FluxCclException.NO_RANK, "the table of connections can't be a JMX bean: " + e, e);
    }
  }

  @Override
  public List<ConnectionState> getConnections() {
    return connections.get();
  }

  @Override
  public String getTable() {
    return getConnections().stream()
        .map(ConnectionState::toString)
        .collect(Collectors.joining("\n", ConnectionState.heading() + "\n", "\n"));
  }

  private void run() {
    while (lifecycle.isOpen()) {
      LockSupport.parkNanos(PERIOD_NANOS);
      if (lifecycle.isOpen()) {
        write();
      }
    }
  }

  /** Replaces the file atomically, so that readers never see an incomplete table. */
  private void write() {
    String text = Instant.now() + "\n" + getTable();
    try {
      LocalFiles.replace(file, text.getBytes(StandardCharsets.UTF_8));
    } catch (IOException e) {
      // The next write may succeed; connections do not depend on the file.
    }
  }

  @Override
  public void close() {
    lifecycle.close();
    if (writer != null) {
      LockSupport.unpark(writer);
    }
    if (name != null) {
      MBeanServer server = ManagementFactory.getPlatformMBeanServer();
      try {
        server.unregisterMBean(name);
      } catch (JMException e) {
        // The bean was removed by other code already.
      }
    }
  }
}
