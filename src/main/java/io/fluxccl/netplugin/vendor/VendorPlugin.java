package io.fluxccl.netplugin.vendor;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.CollNetPlugin;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetSendComm;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.BufferUtil;
import org.slf4j.LoggerFactory;

/**
 * A loaded plugin, its arguments unchecked but for what is closed: {@link NativeNetPlugin} checks
 * them first.
 */
final class VendorPlugin implements NetPlugin {
  private static final int CLOSED = Integer.MIN_VALUE;
  private static final int OLD_MAX_REQUESTS = 8;

  /** The result of init when no logger is left. */
  static final int TOO_MANY = -1;

  private static final Duration PATIENCE = Duration.ofSeconds(10);
  private static final AtomicLong JOBS = new AtomicLong();

  private final PluginSearch.Found found;
  private final boolean keepLoaded;
  private final Duration patience;
  private final String name;
  private final List<NetProperties> properties = new ArrayList<>();

  /** Calls under way that are no comm's; the sign bit is set once it is closed. */
  private final AtomicInteger calls = new AtomicInteger();

  private final Set<AutoCloseable> open = ConcurrentHashMap.newKeySet();

  /** Guarded by {@link #properties}. */
  private VendorCollNet collNet;

  private VendorPlugin(
      PluginSearch.Found found, boolean keepLoaded, Duration patience, String name) {
    this.found = found;
    this.keepLoaded = keepLoaded;
    this.patience = patience;
    this.name = name;
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
      String name = PluginSearch.text(NetPluginCalls.name(found.plugin()));
      int result = NetPluginCalls.init(found.plugin(), PluginLog.level(), JOBS.incrementAndGet());
      if (result == TOO_MANY) {
        throw new InvalidUsage("16 network plugins are loaded; close one before " + found.path());
      }
      VendorPlugin plugin = new VendorPlugin(found, keepLoaded, patience, name);
      plugin.check(result, "init");
      plugin.readDevices();
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

  private void readDevices() {
    int[] count = new int[1];
    check(NetPluginCalls.devices(found.plugin(), count), "devices");
    if (count[0] < 1) {
      throw new TransportFailure(
          FluxCclException.NO_RANK,
          this + " has no devices (" + count[0] + "): is its network's interface up?");
    }
    for (int device = 0; device < count[0]; device++) {
      properties.add(readProperties(device));
    }
  }

  private NetProperties readProperties(int device) {
    byte[][] texts = new byte[2][];
    long[] numbers = new long[NetPluginCalls.PROPERTY_NUMBERS];
    check(
        NetPluginCalls.properties(found.plugin(), device, texts, numbers),
        "getProperties of device " + device);
    return VendorProperties.of(name + "/" + device, texts, numbers);
  }

  /** The library's collective network, opened when first asked for; null when it has none. */
  CollNetPlugin collNet() {
    enter();
    try {
      synchronized (properties) {
        if (collNet == null) {
          collNet =
              VendorCollNet.open(
                  found.library(), found.version(), patience, JOBS.incrementAndGet());
        }
        return collNet;
      }
    } finally {
      exit();
    }
  }

  /** How long a close waits for a call under way. */
  Duration patience() {
    return patience;
  }

  int version() {
    return found.version();
  }

  String path() {
    return found.path();
  }

  long plugin() {
    return found.plugin();
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
  public int maxRequests() {
    return found.version() < 7 ? OLD_MAX_REQUESTS : MAX_REQUESTS;
  }

  @Override
  public NetProperties properties(int device) {
    return properties.get(device);
  }

  @Override
  public NetListenComm listen(int device) {
    enter();
    try {
      NetHandle handle = new NetHandle(new byte[0]);
      long comm = NetPluginCalls.listen(plugin(), device, BufferUtil.address(handle.bytes()));
      check(comm, "listen");
      byte[] bytes = new byte[HANDLE_BYTES];
      handle.bytes().get(0, bytes);
      return keep(new VendorListenComm(this, device, comm, bytes));
    } finally {
      exit();
    }
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    enter();
    try {
      long comm = NetPluginCalls.connect(plugin(), device, BufferUtil.address(handle.bytes()));
      check(comm, "connect");
      return comm == 0 ? null : keep(new VendorSendComm(this, device, comm));
    } finally {
      exit();
    }
  }

  /** Notes what is to be closed with the plugin. */
  <T extends AutoCloseable> T keep(T comm) {
    open.add(comm);
    return comm;
  }

  void forget(AutoCloseable comm) {
    open.remove(comm);
  }

  /**
   * Refuses a result that is not success.
   *
   * @param result NCCL's code, or minus it
   * @param call what was asked
   */
  void check(int result, String call) {
    if (result != 0) {
      throw PluginResults.failure(Math.abs(result), toString(), call);
    }
  }

  /** As {@link #check(int, String)}, for what is an object when it is not negative. */
  void check(long object, String call) {
    if (object < 0) {
      throw PluginResults.failure((int) -object, toString(), call);
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
    CallGate.awaitReturn(() -> calls.get() == CLOSED, toString(), patience);
    closeAll(open);
    if (collNet != null) {
      collNet.close();
    }
    letGo(found, keepLoaded);
  }

  /**
   * Closes what is open, also what is added meanwhile: a connection that is being accepted comes
   * late.
   *
   * @throws Timeout of the first that a call is in; the others are closed
   */
  static void closeAll(Set<AutoCloseable> open) {
    Timeout stuck = null;
    while (!open.isEmpty()) {
      for (AutoCloseable comm : open) {
        try {
          comm.close();
        } catch (Timeout e) {
          stuck = stuck == null ? e : stuck;
        } catch (Exception e) {
          // It can't close what nobody wants any more; it has logged why.
          LoggerFactory.getLogger(NativeNetPlugin.class).debug("{}", e.getMessage());
        }
        open.remove(comm);
      }
    }
    if (stuck != null) {
      throw stuck;
    }
  }

  @Override
  public String toString() {
    return name + " (" + found.path() + ", v" + found.version() + ")";
  }
}
