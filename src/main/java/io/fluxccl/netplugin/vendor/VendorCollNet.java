// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.agrona.BufferUtil;

/** The collective network of a vendor's library. */
final class VendorCollNet extends VendorNetwork implements CollNetPlugin {
  private final PluginCallLock gate;

  /** The number of connect calls in progress. */
  private final AtomicInteger joining = new AtomicInteger();

  private VendorCollNet(long coll, int version, Duration patience) {
    super(coll, version, CollNetCalls.name(coll), patience);
    this.gate = new PluginCallLock(toString(), patience);
  }

  /**
   * Initializes the collective network of a library.
   *
   * @param version the version of the library's network plugin: both have the same
   * @param patience the time that a close waits for a call in progress
   * @return the collective network, or null if the library has none
   * @throws io.fluxccl.FluxCclException if the network can't be initialized, or has no device
   */
  static VendorCollNet open(long library, int version, Duration patience, long job) {
    long coll = CollNetCalls.find(library, version);
    if (coll == 0) {
      return null;
    }
    try {
      VendorCollNet opened = new VendorCollNet(coll, version, patience);
      opened.initialized(CollNetCalls.init(coll, PluginLog.level(), job));
      return opened;
    } catch (RuntimeException | Error e) {
      CollNetCalls.finish(coll);
      throw e;
    }
  }

  @Override
  int readDevices(int[] count) {
    return CollNetCalls.devices(net(), count);
  }

  @Override
  int readProperties(int device, byte[][] texts, long[] numbers) {
    return CollNetCalls.properties(net(), device, texts, numbers);
  }

  @Override
  public NetProperties properties(int device) {
    if (device < 0 || device >= devices()) {
      throw InvalidUsage.of("device=%s of %s; give 0 to %s", device, name(), devices() - 1);
    }
    return super.properties(device);
  }

  @Override
  public CollNetListener listen(int device) {
    properties(device);
    return inside(
        () -> {
          NetHandle handle = new NetHandle(new byte[0]);
          long address = BufferUtil.address(handle.bytes());
          long listener = checkObject(CollNetCalls.listen(net(), device, address), "listen");
          return keep(new Listener(this, device, listener, bytesOf(handle)));
        });
  }

  @Override
  public CollNetComm connect(List<byte[]> handles, int rank, CollNetListener listener) {
    if (rank < 0 || rank >= handles.size()) {
      throw new InvalidUsage("rank=" + rank + "; give 0 to " + (handles.size() - 1));
    }
    if (!(listener instanceof Listener own) || own.gate().isClosed()) {
      throw new InvalidUsage("connect of " + this + ": the listener is closed, or another's");
    }
    ByteBuffer all = BufferUtil.allocateDirectAligned(handles.size() * NetPlugin.HANDLE_BYTES, 64);
    for (int i = 0; i < handles.size(); i++) {
      all.put(i * NetPlugin.HANDLE_BYTES, bytesOf(new NetHandle(handles.get(i))));
    }
    // Outside the gate: connect may wait for other ranks of this process, whose calls enter it.
    joining.incrementAndGet();
    try {
      if (gate.isClosed()) {
        throw new InvalidUsage(this + " is closed");
      }
      return join(own, all, handles.size(), rank);
    } finally {
      joining.decrementAndGet();
    }
  }

  private CollNetComm join(Listener own, ByteBuffer all, int ranks, int rank) {
    own.gate().enter();
    try {
      long handles = BufferUtil.address(all);
      long comm = CollNetCalls.connect(net(), handles, ranks, rank, own.object());
      checkObject(comm, "connect");
      return keep(new VendorCollComm(this, comm, properties(own.device)));
    } finally {
      own.gate().exit();
      // The plugin read the buffer by its address.
      Reference.reachabilityFence(all);
    }
  }

  @Override
  public boolean reduces(DataType type, ReduceOp op) {
    return inside(
        () ->
            checkObject(
                    CollNetCalls.reduceSupport(net(), type.ordinal(), codeOf(op)), "reduceSupport")
                > 0);
  }

  private synchronized <T> T inside(Supplier<T> call) {
    gate.enter();
    try {
      return call.get();
    } finally {
      gate.exit();
    }
  }

  /** Returns NCCL's number of a reduce operation. */
  static int codeOf(ReduceOp op) {
    return switch (op) {
      case SUM -> 0;
      case PROD -> 1;
      case MAX -> 2;
      case MIN -> 3;
      case AVG -> 4;
    };
  }

  @Override
  public void close() {
    gate.close(
        () -> {
          PluginCallLock.awaitReturn(() -> joining.get() == 0, toString(), patience());
          closeAll();
          CollNetCalls.finish(net());
        });
  }

  @Override
  public String toString() {
    return name() + " (collective, v" + version() + ")";
  }

  private static final class Listener extends VendorObject<VendorCollNet>
      implements CollNetListener {
    private final int device;
    private final byte[] handle;

    Listener(VendorCollNet network, int device, long listener, byte[] handle) {
      super(network, listener, "a listener");
      this.device = device;
      this.handle = handle;
    }

    @Override
    public byte[] handle() {
      return handle.clone();
    }

    @Override
    void free() {
      network().check(CollNetCalls.closeListen(net(), object()), "closeListen");
    }
  }
}
