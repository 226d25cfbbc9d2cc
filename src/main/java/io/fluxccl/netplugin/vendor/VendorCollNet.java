package io.fluxccl.netplugin.vendor;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.CollNetComm;
import io.fluxccl.netplugin.CollNetListener;
import io.fluxccl.netplugin.CollNetPlugin;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.agrona.BufferUtil;

/** The collective network of a vendor's library. */
final class VendorCollNet implements CollNetPlugin {
  private final long coll;
  private final int version;
  private final String name;
  private final List<NetProperties> properties = new ArrayList<>();
  private final Duration patience;
  private final CallGate gate;

  /** Calls of connect under way. */
  private final AtomicInteger joining = new AtomicInteger();

  private final Set<AutoCloseable> open = ConcurrentHashMap.newKeySet();

  private VendorCollNet(long coll, int version, Duration patience) {
    this.coll = coll;
    this.version = version;
    this.patience = patience;
    this.name = PluginSearch.text(CollNetCalls.name(coll));
    this.gate = new CallGate(toString(), patience);
  }

  /**
   * Initializes the collective network of a library.
   *
   * @param version that of its network plugin: the two go together
   * @param patience how long a close waits for a call under way
   * @return null if the library has none
   * @throws FluxCclException if it refuses, or has no device
   */
  static VendorCollNet open(long library, int version, Duration patience, long job) {
    long coll = CollNetCalls.find(library, version);
    if (coll == 0) {
      return null;
    }
    try {
      VendorCollNet opened = new VendorCollNet(coll, version, patience);
      int result = CollNetCalls.init(coll, PluginLog.level(), job);
      if (result == VendorPlugin.TOO_MANY) {
        throw new InvalidUsage(
            "16 network plugins are loaded; close one before that of " + opened + " is used");
      }
      opened.check(result, "init");
      opened.readDevices();
      return opened;
    } catch (RuntimeException e) {
      CollNetCalls.finish(coll);
      throw e;
    }
  }

  private void readDevices() {
    int[] count = new int[1];
    check(CollNetCalls.devices(coll, count), "devices");
    if (count[0] < 1) {
      throw new TransportFailure(FluxCclException.NO_RANK, this + " has no devices that reduce");
    }
    for (int device = 0; device < count[0]; device++) {
      byte[][] texts = new byte[2][];
      long[] numbers = new long[NetPluginCalls.PROPERTY_NUMBERS];
      check(CollNetCalls.properties(coll, device, texts, numbers), "getProperties");
      properties.add(VendorProperties.of(name + "/" + device, texts, numbers));
    }
  }

  long coll() {
    return coll;
  }

  Duration patience() {
    return patience;
  }

  int version() {
    return version;
  }

  void forget(AutoCloseable closed) {
    open.remove(closed);
  }

  void check(long result, String call) {
    if (result != 0) {
      throw PluginResults.failure((int) Math.abs(result), toString(), call);
    }
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public int devices() {
    return properties.size();
  }

  @Override
  public NetProperties properties(int device) {
    if (device < 0 || device >= properties.size()) {
      throw new InvalidUsage(
          "device=" + device + " of " + name + "; give 0 to " + (properties.size() - 1));
    }
    return properties.get(device);
  }

  @Override
  public CollNetListener listen(int device) {
    properties(device);
    return inside(
        () -> {
          NetHandle handle = new NetHandle(new byte[0]);
          long listener = CollNetCalls.listen(coll, device, BufferUtil.address(handle.bytes()));
          check(Math.min(0, listener), "listen");
          byte[] bytes = new byte[NetPlugin.HANDLE_BYTES];
          handle.bytes().get(0, bytes);
          Listener opened = new Listener(device, listener, bytes);
          open.add(opened);
          return opened;
        });
  }

  @Override
  public CollNetComm connect(List<byte[]> handles, int rank, CollNetListener listener) {
    if (rank < 0 || rank >= handles.size()) {
      throw new InvalidUsage("rank=" + rank + "; give 0 to " + (handles.size() - 1));
    }
    if (!(listener instanceof Listener) || ((Listener) listener).use.isClosed()) {
      throw new InvalidUsage("connect of " + this + ": the listener is closed, or another's");
    }
    Listener own = (Listener) listener;
    ByteBuffer all = BufferUtil.allocateDirectAligned(handles.size() * NetPlugin.HANDLE_BYTES, 64);
    for (int i = 0; i < handles.size(); i++) {
      byte[] bytes = new byte[NetPlugin.HANDLE_BYTES];
      new NetHandle(handles.get(i)).bytes().get(0, bytes);
      all.put(i * NetPlugin.HANDLE_BYTES, bytes);
    }
    // Outside of the gate: it may wait for ranks of this process, which come in by it.
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
    own.use.enter();
    try {
      long comm = CollNetCalls.connect(coll, BufferUtil.address(all), ranks, rank, own.listener);
      check(Math.min(0, comm), "connect");
      VendorCollComm joined = new VendorCollComm(this, comm, properties.get(own.device));
      open.add(joined);
      return joined;
    } finally {
      own.use.exit();
      // The plugin read it by its address.
      Reference.reachabilityFence(all);
    }
  }

  @Override
  public boolean reduces(DataType type, ReduceOp op) {
    return inside(
        () -> {
          int supported = CollNetCalls.reduceSupport(coll, codeOf(type), codeOf(op));
          check(Math.min(0, supported), "reduceSupport");
          return supported > 0;
        });
  }

  private synchronized <T> T inside(Supplier<T> call) {
    gate.enter();
    try {
      return call.get();
    } finally {
      gate.exit();
    }
  }

  /** NCCL's number for a type. */
  static int codeOf(DataType type) {
    return switch (type) {
      case INT8 -> 0;
      case UINT8 -> 1;
      case INT32 -> 2;
      case UINT32 -> 3;
      case INT64 -> 4;
      case UINT64 -> 5;
      case FLOAT16 -> 6;
      case FLOAT32 -> 7;
      case FLOAT64 -> 8;
      case BFLOAT16 -> 9;
      case FLOAT8_E4M3 -> 10;
      case FLOAT8_E5M2 -> 11;
    };
  }

  /** NCCL's number for an operation. */
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
          CallGate.awaitReturn(() -> joining.get() == 0, toString(), patience);
          VendorPlugin.closeAll(open);
          CollNetCalls.finish(coll);
        });
  }

  @Override
  public String toString() {
    return name + " (collective, v" + version + ")";
  }

  private final class Listener implements CollNetListener {
    private final int device;
    private final long listener;
    private final byte[] handle;
    private final CallGate use = new CallGate("a listener of " + VendorCollNet.this, patience);

    Listener(int device, long listener, byte[] handle) {
      this.device = device;
      this.listener = listener;
      this.handle = handle;
    }

    @Override
    public byte[] handle() {
      return handle.clone();
    }

    @Override
    public void close() {
      use.close(this::end);
    }

    private void end() {
      try {
        check(CollNetCalls.closeListen(coll, listener), "closeListen");
      } finally {
        forget(this);
      }
    }
  }
}
