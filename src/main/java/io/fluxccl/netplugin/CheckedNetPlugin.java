package io.fluxccl.netplugin;

import io.fluxccl.InvalidUsage;

/**
 * Refuses with {@link InvalidUsage} what the interface forbids, before a plugin sees it: use after
 * close, more requests than allowed, memory that is not registered here or too small, sizes and
 * groups that are too large, a request tested after it was done. Allocates nothing per operation.
 *
 * <p>Also a receive that got more than it had room for ends so, should a plugin let it pass.
 */
public final class CheckedNetPlugin implements NetPlugin {
  private final NetPlugin plugin;
  private volatile boolean closed;

  private CheckedNetPlugin(NetPlugin plugin) {
    this.plugin = plugin;
  }

  /**
   * A plugin with checks.
   *
   * @param plugin what is to be checked; closed with what is returned
   * @return a plugin that does what the given one does
   */
  public static NetPlugin of(NetPlugin plugin) {
    return plugin instanceof CheckedNetPlugin ? plugin : new CheckedNetPlugin(plugin);
  }

  @Override
  public String name() {
    return plugin.name();
  }

  @Override
  public int devices() {
    return plugin.devices();
  }

  @Override
  public int maxRequests() {
    return plugin.maxRequests();
  }

  @Override
  public boolean carriesBodies() {
    return plugin.carriesBodies();
  }

  @Override
  public void tend() {
    plugin.tend();
  }

  @Override
  public NetProperties properties(int device) {
    requireDevice(device);
    return plugin.properties(device);
  }

  @Override
  public NetListenComm listen(int device) {
    requireOpen();
    requireDevice(device);
    return new CheckedListenComm(this, plugin.listen(device));
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    requireOpen();
    requireDevice(device);
    if (handle == null) {
      throw new InvalidUsage("connect of " + name() + ": handle=null; give the listener's");
    }
    NetSendComm comm = plugin.connect(device, handle);
    return comm == null ? null : new CheckedSendComm(this, comm);
  }

  private void requireDevice(int device) {
    if (device < 0 || device >= plugin.devices()) {
      throw new InvalidUsage(
          "device=" + device + " of " + name() + "; give 0 to " + (plugin.devices() - 1));
    }
  }

  void requireOpen() {
    if (closed) {
      throw new InvalidUsage("the network plugin " + name() + " is closed");
    }
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      plugin.close();
    }
  }

  @Override
  public String toString() {
    return plugin.toString();
  }

  /** Checks a listener. */
  private static final class CheckedListenComm implements NetListenComm {
    private final CheckedNetPlugin owner;
    private final NetListenComm comm;
    private volatile boolean ended;

    CheckedListenComm(CheckedNetPlugin owner, NetListenComm comm) {
      this.owner = owner;
      this.comm = comm;
    }

    @Override
    public byte[] handle() {
      return comm.handle();
    }

    @Override
    public NetRecvComm accept() {
      owner.requireOpen();
      if (ended) {
        throw new InvalidUsage("accept on a listener of " + owner.name() + " that is closed");
      }
      NetRecvComm accepted = comm.accept();
      return accepted == null ? null : new CheckedRecvComm(owner, accepted);
    }

    @Override
    public void close() {
      ended = true;
      comm.close();
    }
  }
}
