package io.fluxccl.netplugin.vendor;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.netplugin.CollNetPlugin;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetSendComm;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.BufferUtil;

/**
 * A loaded plugin, its arguments unchecked but for what is closed: {@link NativeNetPlugin} checks
 * them first.
 */
final class VendorPlugin extends VendorNetwork implements NetPlugin {
  private static final int CLOSED = Integer.MIN_VALUE;
  private static final int OLD_MAX_REQUESTS = 8;

  private static final Duration PATIENCE = Duration.ofSeconds(10);
  private static final AtomicLong JOBS = new AtomicLong();

  private final PluginSearch.Found found;
  private final boolean keepLoaded;

  /** Calls under way that are no comm's; the sign bit is set once it is closed. */
  private final AtomicInteger calls = new AtomicInteger();

  private final Object collNetLock = new Object();

  // Guarded by collNetLock.
  private VendorCollNet collNet;

  private VendorPlugin(PluginSearch.Found found, boolean keepLoaded, Duration patience) {
    super(found.plugin(), found.version(), NetPluginCalls.name(found.plugin()), patience);
    this.found = found;
    this.keepLoaded = keepLoaded;
  }

  /**
   * Initializes what was found; lets go of it when that fails.
   *
   * @throws FluxCclException if the plugin refuses or has no device
   */
  static VendorPlugin open(PluginSearch.Found found, boolean keepLoaded) {
    return open(found, keepLoaded, PATIENCE);
  }

  /**
   * As {@link #open(PluginSearch.Found, boolean)}.
   *
   * @param patience how long a close waits for a call under way
   */
  static VendorPlugin open(PluginSearch.Found found, boolean keepLoaded, Duration patience) {
    PluginLog.enter();
    try {
      VendorPlugin plugin = new VendorPlugin(found, keepLoaded, patience);
      plugin.initialized(
          NetPluginCalls.init(found.plugin(), PluginLog.level(), JOBS.incrementAndGet()));
      return plugin;
    } catch (RuntimeException e) {
      letGo(found, keepLoaded);
      throw e;
    }
  }

  private static void letGo(PluginSearch.Found found, boolean keepLoaded) {
    NetPluginCalls.finish(found.plugin());
    if (!keepLoaded) {
      NetPluginCalls.closeLibrary(found.library());
    }
    PluginLog.exit();
  }

  @Override
  int readDevices(int[] count) {
    return NetPluginCalls.devices(net(), count);
  }

  @Override
  int readProperties(int device, byte[][] texts, long[] numbers) {
    return NetPluginCalls.properties(net(), device, texts, numbers);
  }

  /** Returns the library's collective network, opened when first asked for; null if it has none. */
  CollNetPlugin collNet() {
    enter();
    try {
      synchronized (collNetLock) {
        if (collNet == null) {
          collNet =
              VendorCollNet.open(found.library(), version(), patience(), JOBS.incrementAndGet());
        }
        return collNet;
      }
    } finally {
      exit();
    }
  }

  String path() {
    return found.path();
  }

  @Override
  public int maxRequests() {
    return version() < 7 ? OLD_MAX_REQUESTS : MAX_REQUESTS;
  }

  @Override
  public NetListenComm listen(int device) {
    enter();
    try {
      NetHandle handle = new NetHandle(new byte[0]);
      long address = BufferUtil.address(handle.bytes());
      long comm = checkObject(NetPluginCalls.listen(net(), device, address), "listen");
      return keep(new VendorListenComm(this, device, comm, bytesOf(handle)));
    } finally {
      exit();
    }
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    enter();
    try {
      long address = BufferUtil.address(handle.bytes());
      long comm = checkObject(NetPluginCalls.connect(net(), device, address), "connect");
      return comm == 0 ? null : keep(new VendorSendComm(this, device, comm));
    } finally {
      exit();
    }
  }

  /** Keeps the plugin loaded until {@link #exit()}. */
  void enter() {
    int before;
    do {
      before = calls.get();
      if (before < 0) {
        throw new InvalidUsage(this + " is closed");
      }
    } while (!calls.compareAndSet(before, before + 1));
  }

  void exit() {
    calls.decrementAndGet();
  }

  /**
   * Closes all and unloads the library.
   *
   * @throws Timeout if a call does not return: the library, what is in that call, and the
   *     collective network then stay for good
   */
  @Override
  public void close() {
    if (calls.getAndUpdate(count -> count | CLOSED) < 0) {
      return;
    }
    CallGate.awaitReturn(() -> calls.get() == CLOSED, toString(), patience());
    closeAll();
    if (collNet != null) {
      collNet.close();
    }
    letGo(found, keepLoaded);
  }

  @Override
  public String toString() {
    return name() + " (" + found.path() + ", v" + version() + ")";
  }
}
