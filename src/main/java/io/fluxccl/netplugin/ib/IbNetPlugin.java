package io.fluxccl.netplugin.ib;

import io.fluxccl.Closing;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.ConnectionState;
import io.fluxccl.netplugin.ConnectionTable;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.transport.ib.Verbs;
import io.fluxccl.transport.ib.VerbsLibrary;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A network over RDMA, InfiniBand or RoCE. Each RDMA device is a device; memory is the host's. A
 * connection is one queue pair, and has no thread: who posts and tests its requests drives it.
 */
public final class IbNetPlugin implements NetPlugin {
  /** Its name for {@code FLUXCCL_NET}. */
  public static final String NAME = "fluxccl-ib";

  private static final Logger LOG = LoggerFactory.getLogger(IbNetPlugin.class);

  private final Verbs verbs;
  private final List<IbNetDevice> devices;
  private final IbNetOptions options;
  private final ConnectionTable table;
  private final Set<IbNetComm> comms = ConcurrentHashMap.newKeySet();
  private final Set<AutoCloseable> unfinished = ConcurrentHashMap.newKeySet();

  /** Opened at first use; guarded by this. */
  private final IbNetPort[] ports;

  private volatile boolean closed;

  /**
   * Opens the network.
   *
   * @param options how RDMA is used
   * @throws TransportFailure if there are no verbs or no usable device
   */
  public IbNetPlugin(IbNetOptions options) {
    this(VerbsLibrary.get(), IbNetDevice.usable(), options);
  }

  IbNetPlugin(Verbs verbs, List<IbNetDevice> devices, IbNetOptions options) {
    if (devices.isEmpty()) {
      throw new TransportFailure(FluxCclException.NO_RANK, "no RDMA device can be used");
    }
    this.verbs = verbs;
    this.devices = devices;
    this.options = options;
    ports = new IbNetPort[devices.size()];
    table = new ConnectionTable(NAME, options.table(), this::connections);
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
    checkDevice(device);
    return devices.get(device).properties();
  }

  @Override
  public NetListenComm listen(int device) {
    checkDevice(device);
    IbNetListenComm listener = new IbNetListenComm(this, device);
    unfinished.add(listener);
    closeIfLate(listener);
    return listener;
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    IbNetConnect progress = (IbNetConnect) handle.progress();
    if (progress == null) {
      checkDevice(device);
      progress = new IbNetConnect(this, device, SetupDescriptor.readHandle(handle.bytes()));
      handle.keep(progress);
      unfinished.add(progress);
    }
    closeIfLate(progress);
    boolean pending = false;
    try {
      IbNetSendComm comm = progress.poll();
      pending = comm == null;
      return comm;
    } finally {
      if (!pending) {
        handle.keep(null);
        progress.close();
      }
    }
  }

  /** The connections, as they are now; for any thread. */
  public List<ConnectionState> connections() {
    return comms.stream().map(IbNetComm::state).collect(Collectors.toList());
  }

  IbNetOptions options() {
    return options;
  }

  /** The open device. */
  synchronized IbNetPort port(int device) {
    if (closed) {
      throw new InvalidUsage("the network is closed");
    }
    if (ports[device] == null) {
      ports[device] = new IbNetPort(verbs, devices.get(device));
    }
    return ports[device];
  }

  <T extends IbNetComm> T remember(T comm) {
    comms.add(comm);
    if (closed) {
      comm.abort();
    }
    return comm;
  }

  void forget(IbNetComm comm) {
    comms.remove(comm);
  }

  void forget(IbNetListenComm listener) {
    unfinished.remove(listener);
  }

  void forget(IbNetConnect connect) {
    unfinished.remove(connect);
  }

  /** The network may have been closed in between, and not have seen it. */
  private void closeIfLate(AutoCloseable each) {
    if (closed) {
      closeQuietly(each);
      unfinished.remove(each);
      throw new InvalidUsage("the network is closed");
    }
  }

  private void checkDevice(int device) {
    if (device < 0 || device >= devices.size()) {
      throw new InvalidUsage("device=" + device + "; there are " + devices.size());
    }
  }

  @Override
  public void close() {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
    }
    table.close();
    unfinished.forEach(IbNetPlugin::closeQuietly);
    List<AutoCloseable> steps = new ArrayList<>();
    comms.forEach(comm -> steps.add(comm::abort));
    synchronized (this) {
      for (IbNetPort port : ports) {
        if (port != null) {
          steps.add(port::close);
        }
      }
    }
    Closing.all(steps);
  }

  private static void closeQuietly(AutoCloseable each) {
    try {
      each.close();
    } catch (Exception e) {
      LOG.warn("closing {} failed", each, e);
    }
  }
}
