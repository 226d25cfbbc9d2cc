// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetSendComm;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.BufferUtil;

/**
 * A loaded plugin, which refuses calls after close but does not check arguments: {@link
 * NativeNetPlugin} checks them first.
 */
final class VendorPlugin extends VendorNetwork implements NetPlugin {
  private static final int CLOSED = Integer.MIN_VALUE;
  private static final int OLD_MAX_REQUESTS = 8;

  private static final Duration PATIENCE = Duration.ofSeconds(10);
  private static final AtomicLong JOBS = new AtomicLong();

  private final PluginSearch.Found found;

  /**
   * The number of calls in progress of the plugin itself, not of its comms. Close sets the sign
   * bit.
   */
  private final AtomicInteger calls = new AtomicInteger();

  private final Object collNetLock = new Object();

  // Guarded by collNetLock.
  private VendorCollNet collNet;

  private VendorPlugin(PluginSearch.Found found, Duration patience) {
    super(found.plugin(), found.version(), NetPluginCalls.name(found.plugin()), patience);
    this.found = found;
  }

  /**
   * Initializes a plugin that was found; unloads it if that fails.
   *
   * @throws FluxCclException if the plugin can't be initialized or has no device
   */
  static VendorPlugin open(PluginSearch.Found found) {
    return open(found, PATIENCE);
  }

  /**
   * Initializes a plugin as {@link #open(PluginSearch.Found)} does.
   *
   * @param patience how long a close waits for a call in progress
   */
  static VendorPlugin open(PluginSearch.Found found, Duration patience) {
    PluginLog.enter();
    try {
      VendorPlugin plugin = new VendorPlugin(found, patience);
      plugin.initialized(
          NetPluginCalls.init(found.plugin(), PluginLog.level(), JOBS.incrementAndGet()));
      RestoredSignals.log(plugin.toString());
      return plugin;
    } catch (RuntimeException | Error e) {
      letGo(found);
      throw e;
    }
  }

  private static void letGo(PluginSearch.Found found) {
    NetPluginCalls.finish(found.plugin());
    NetPluginCalls.closeLibrary(found.library());
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

  /** Returns the library's collective network, or null if it has none. The first call opens it. */
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

  /** Counts a call in progress, which keeps the plugin loaded until {@link #exit()}. */
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
   * Closes all open objects and unloads the library.
   *
   * @throws Timeout if a call does not return in time. The library, the object of that call and the
   *     collective network then stay until the process ends
   */
  @Override
  public void close() {
    if (calls.getAndUpdate(count -> count | CLOSED) < 0) {
      return;
    }
    PluginCallLock.awaitReturn(() -> calls.get() == CLOSED, toString(), patience());
    closeAll();
    if (collNet != null) {
      collNet.close();
    }
    letGo(found);
  }

  @Override
  public String toString() {
    return name() + " (" + found.path() + ", v" + version() + ")";
  }
}
