// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import io.fluxccl.InvalidUsage;
import io.fluxccl.JvmAccess;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.netplugin.ConnectionState;
import io.fluxccl.netplugin.ConnectionTable;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.transport.tcp.TcpHandle;
import io.fluxccl.transport.tcp.TcpServer;
import java.net.InetAddress;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A network plugin over TCP. Each network interface is a device; it reaches host memory only. The
 * thread that tests a connection's requests drives the connection's first socket. With {@link
 * TcpOptions#streams()} above 1 the connection has as many more sockets. I/O threads drive these,
 * and large messages are spread over them.
 */
public final class TcpNetPlugin implements NetPlugin {
  /** The plugin's name for {@code NCCL_NET}. */
  public static final String NAME = "fluxccl";

  private static final Logger LOG = LoggerFactory.getLogger(TcpNetPlugin.class);

  private final TcpOptions options;
  private final List<TcpDevice> devices;
  private final ConnectionTable table;
  private final Set<TcpComm> comms = ConcurrentHashMap.newKeySet();
  private final Set<AutoCloseable> unfinished = ConcurrentHashMap.newKeySet();

  /** The I/O threads, created when first needed. Guarded by this, like {@link #turn}. */
  private final IoThread[] threads;

  /** The server of each device that has listeners, or null. Guarded by this. */
  private final TcpServer[] servers;

  private int turn;
  private final Lifecycle lifecycle = new Lifecycle(this);

  /**
   * Opens the network.
   *
   * @param options how TCP is used
   * @throws io.fluxccl.TransportFailure if there is no usable interface
   * @throws InvalidUsage if the JVM was started without the options that it needs
   */
  public TcpNetPlugin(TcpOptions options) {
    this(options, TcpDevice.find(options));
  }

  private TcpNetPlugin(TcpOptions options, List<TcpDevice> devices) {
    JvmAccess.requireUnsafe();
    this.options = options;
    this.devices = devices;
    threads = new IoThread[options.threads()];
    servers = new TcpServer[devices.size()];
    table = new ConnectionTable(NAME, options.table(), this::connections);
  }

  /**
   * Opens a network of one device, which has a given address. The device listens at once, and again
   * whenever it has listeners: when the last one closes, the port closes too.
   *
   * @param address an address of this host
   * @param options how TCP is used; its choice of interfaces is ignored
   * @throws io.fluxccl.TransportFailure if there is no port to listen on
   */
  public static TcpNetPlugin at(InetAddress address, TcpOptions options) {
    TcpNetPlugin plugin = new TcpNetPlugin(options, List.of(TcpDevice.at(address, options)));
    Closing.onFailure(plugin, () -> plugin.server(0));
    return plugin;
  }

  @Override
  public String name() {
    return NAME;
  }

  @Override
  public int devices() {
    return devices.size();
  }

  @Override
  public NetProperties properties(int device) {
    return device(device).properties(device);
  }

  @Override
  public NetListenComm listen(int device) {
    checkOpen("listen");
    TcpListenComm listener;
    synchronized (this) {
      listener = new TcpListenComm(this, device, server(device));
    }
    unfinished.add(listener);
    closeIfLate(listener);
    return listener;
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    checkOpen("connect");
    TcpConnect progress = (TcpConnect) handle.progress();
    if (progress == null) {
      device(device);
      progress = new TcpConnect(this, device, decode(handle));
      handle.keep(progress);
      unfinished.add(progress);
    }
    closeIfLate(progress);
    boolean pending = false;
    try {
      TcpSendComm comm = progress.poll();
      pending = comm == null;
      return pending ? null : remember(comm);
    } finally {
      if (!pending) {
        handle.keep(null);
        progress.close();
      }
    }
  }

  private static TcpHandle decode(NetHandle handle) {
    try {
      return TcpHandle.decode(handle.bytes());
    } catch (InvalidUsage e) {
      throw new NetMisuse(e.getMessage());
    }
  }

  /** Returns the current state of all connections. Called by any thread. */
  public List<ConnectionState> connections() {
    return comms.stream().map(TcpComm::state).collect(Collectors.toList());
  }

  TcpOptions options() {
    return options;
  }

  String deviceName(int device) {
    return devices.get(device).name();
  }

  <T extends TcpComm> T remember(T comm) {
    comms.add(comm);
    if (lifecycle.isClosed()) {
      comm.abort();
    }
    return comm;
  }

  void forget(TcpComm comm) {
    comms.remove(comm);
  }

  synchronized void forget(TcpListenComm listener, int device) {
    unfinished.remove(listener);
    TcpServer server = servers[device];
    if (server != null && server.remove(listener)) {
      servers[device] = null;
      server.close();
    }
  }

  /** Returns the server of a device, which the device's listeners share; opens it if needed. */
  private synchronized TcpServer server(int device) {
    TcpDevice where = device(device);
    if (servers[device] == null) {
      servers[device] =
          new TcpServer(
              where.name(),
              where.address(),
              new TcpServer.Options(
                  options.ports(),
                  options.tls(),
                  options.handshakeTimeout(),
                  WireDescriptor.HELLO_MAGIC,
                  WireDescriptor.HELLO_LENGTH));
    }
    return servers[device];
  }

  void forget(TcpConnect connect) {
    unfinished.remove(connect);
  }

  /** Returns the I/O thread for one more stream; streams are assigned to the threads in turn. */
  synchronized IoThread ioThread() {
    // A thread that started after close would never be ended.
    checkOpen("connection");
    int index = turn++ % threads.length;
    if (threads[index] == null) {
      threads[index] = new IoThread(index);
    }
    return threads[index];
  }

  private TcpDevice device(int device) {
    if (device < 0 || device >= devices.size()) {
      throw new NetMisuse("device=" + device + "; there are " + devices.size());
    }
    return devices.get(device);
  }

  /**
   * Closes an object and throws if the network was closed while the object was created: close may
   * have missed it.
   */
  private void closeIfLate(AutoCloseable each) {
    if (lifecycle.isClosed()) {
      closeQuietly(each);
      throw new NetMisuse("the network is closed");
    }
  }

  private void checkOpen(String operation) {
    if (lifecycle.isClosed()) {
      throw new NetMisuse(operation + ": the network is closed");
    }
  }

  @Override
  public void close() {
    synchronized (this) {
      if (!lifecycle.beginClose()) {
        return;
      }
    }
    table.close();
    for (AutoCloseable each : unfinished) {
      closeQuietly(each);
    }
    comms.forEach(TcpComm::abort);
    comms.clear();
    synchronized (this) {
      for (IoThread thread : threads) {
        if (thread != null) {
          thread.close();
        }
      }
      for (TcpServer server : servers) {
        if (server != null) {
          server.close();
        }
      }
    }
  }

  private static void closeQuietly(AutoCloseable each) {
    try {
      each.close();
    } catch (Exception e) {
      LOG.warn("closing {} failed", each, e);
    }
  }
}
