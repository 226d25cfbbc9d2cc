// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;

/**
 * Refuses misuse of a plugin with {@link InvalidUsage} before the plugin sees the call. It refuses
 * use after close, more requests than allowed, and a request that is tested after it was done. It
 * refuses memory that is too small or not registered with the comm, and sizes and groups that are
 * too large. Allocates nothing per operation.
 *
 * <p>A receive of more bytes than it has room for fails, too, if the plugin does not report that.
 */
public final class CheckedNetPlugin implements NetPlugin {
  private final NetPlugin plugin;
  private final Lifecycle lifecycle = new Lifecycle(this);

  private CheckedNetPlugin(NetPlugin plugin) {
    this.plugin = plugin;
  }

  /**
   * Returns a plugin that checks each call and forwards it to the given plugin.
   *
   * @param plugin the plugin to check; closing the returned plugin closes it
   * @return the checked plugin; the given one if it is checked already
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
      throw new NetMisuse("connect of " + name() + ": handle=null; give the listener's");
    }
    NetSendComm comm = plugin.connect(device, handle);
    return comm == null ? null : new CheckedSendComm(this, comm);
  }

  private void requireDevice(int device) {
    if (device < 0 || device >= plugin.devices()) {
      throw new NetMisuse(
          "device=" + device + " of " + name() + "; give 0 to " + (plugin.devices() - 1));
    }
  }

  void requireOpen() {
    if (lifecycle.isClosed()) {
      throw new NetMisuse("the network plugin " + name() + " is closed");
    }
  }

  @Override
  public void close() {
    if (lifecycle.beginClose()) {
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
        throw new NetMisuse("accept on a listener of " + owner.name() + " that is closed");
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
