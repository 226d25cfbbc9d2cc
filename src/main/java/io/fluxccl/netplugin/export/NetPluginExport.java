// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.vendor.NetResult;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;
import org.agrona.UnsafeApi;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The methods that {@code libnccl-net-fluxccl.so} calls on NCCL's threads. Numbers stand for
 * objects; addresses are those of C. Each method returns a result of its own, which is 0 or more,
 * or the negated code of a {@link NetResult}. NCCL's log then states the reason. No method throws.
 *
 * <p>Sending, receiving and testing allocate nothing.
 */
public final class NetPluginExport {
  private static final Logger LOG = LoggerFactory.getLogger(NetPluginExport.class);
  private static final PointerType[] POINTER_TYPES = PointerType.values();

  private static final SlotTable<NetListenComm> LISTENERS = new SlotTable<>("listeners");
  private static final SlotTable<ExportedComm> COMMS = new SlotTable<>("connections");
  private static final ConnectAttempts ATTEMPTS = new ConnectAttempts();

  /** The open network, or null. Guarded by the class, like the number of its users. */
  private static volatile NetPlugin network;

  private static int users;
  private static boolean opening;

  private NetPluginExport() {}

  /**
   * Adds a user. The first user opens the network that {@code FLUXCCL_NET} names, or else the
   * usable one with the highest priority.
   *
   * @return the number of the network's devices
   */
  static synchronized int open() {
    try {
      if (network == null) {
        network = openOnce(() -> Networks.open(System.getenv("FLUXCCL_NET"), Networks.providers()));
      }
      users++;
      return network.devices();
    } catch (Throwable e) {
      return failed("init", e);
    }
  }

  /**
   * Opens a network and logs it. Refuses a call from within the opener: a network that loads NCCL's
   * plugins may load an older FluxCCL library. Such a library does not identify itself, and calls
   * this method again.
   */
  static synchronized NetPlugin openOnce(Supplier<NetPlugin> opener) {
    if (opening) {
      throw new InvalidUsage("the network to load is the one that is being opened, FluxCCL itself");
    }
    opening = true;
    try {
      NetPlugin opened = opener.get();
      say(
          false,
          Text.of(
              "network %s with %s devices, Java %s",
              opened.name(), opened.devices(), Runtime.version()));
      return opened;
    } finally {
      opening = false;
    }
  }

  /** Removes a user; the last one closes the network. */
  static synchronized int release() {
    try {
      if (users > 0 && --users == 0) {
        NetPlugin closing = network;
        network = null;
        ATTEMPTS.clear();
        closing.close();
      }
      return 0;
    } catch (Throwable e) {
      return failed("finalize", e);
    }
  }

  /** Writes a device's properties to {@code out}, in the layout of {@link PropertiesDescriptor}. */
  static int properties(int device, long out) {
    return run("getProperties", () -> PropertiesDescriptor.put(out, network().properties(device)));
  }

  /**
   * Starts to listen. Writes the handle to {@code handle}, padded with zeros; returns the
   * listener's number.
   */
  static long listen(int device, long handle) {
    try {
      NetListenComm listener = network().listen(device);
      byte[] bytes = listener.handle();
      UnsafeApi.setMemory(handle, NetPlugin.HANDLE_BYTES, (byte) 0);
      for (int i = 0; i < bytes.length; i++) {
        UnsafeApi.putByte(handle + i, bytes[i]);
      }
      return LISTENERS.add(listener);
    } catch (Throwable e) {
      return failed("listen", e);
    }
  }

  /** Connects; returns the number of the sending end, or 0 if the connect is not complete yet. */
  static long connect(int device, long handle) {
    try {
      NetPlugin to = network();
      NetSendComm comm = ATTEMPTS.connect(to, device, handle);
      return comm == null ? 0 : COMMS.add(new ExportedComm(comm, to.properties(device).maxRecvs()));
    } catch (Throwable e) {
      return failed("connect", e);
    }
  }

  /** Accepts; returns the number of the receiving end, or 0 if no connection has arrived yet. */
  static long accept(long listener) {
    try {
      NetRecvComm comm = LISTENERS.get(listener).accept();
      return comm == null
          ? 0
          : COMMS.add(new ExportedComm(comm, network().properties(comm.device()).maxRecvs()));
    } catch (Throwable e) {
      return failed("accept", e);
    }
  }

  /** Registers memory; returns the registration's number. */
  static long register(long comm, long address, long size, int type) {
    try {
      ExportedComm to = COMMS.get(comm);
      return to.add(to.comm().register(address, size, pointerType(type)));
    } catch (Throwable e) {
      return failed("regMr", e);
    }
  }

  /** Registers memory; returns the registration's number. */
  static long registerDmaBuf(long comm, long address, long size, int type, long offset, int fd) {
    try {
      ExportedComm to = COMMS.get(comm);
      return to.add(to.comm().registerDmaBuf(address, size, pointerType(type), offset, fd));
    } catch (Throwable e) {
      return failed("regMrDmaBuf", e);
    }
  }

  static int deregister(long comm, long memory) {
    return run("deregMr", () -> COMMS.get(comm).remove(memory));
  }

  /** Posts a send; returns the request's number, or 0 if NCCL must call again later. */
  static long isend(long comm, long address, long size, int tag, long memory) {
    try {
      int request = COMMS.get(comm).isend(address, size, tag, memory);
      return request == 0 ? 0 : comm | request;
    } catch (Throwable e) {
      return failed("isend", e);
    }
  }

  /**
   * Posts a receive; returns the request's number, or 0 if NCCL must call again later. Sizes are
   * longs if {@code wide}, else ints.
   */
  static long irecv(
      long comm, int n, long data, long sizes, boolean wide, long tags, long memories) {
    try {
      int request = COMMS.get(comm).irecv(n, data, sizes, wide, tags, memories);
      return request == 0 ? 0 : comm | request;
    } catch (Throwable e) {
      return failed("irecv", e);
    }
  }

  /** Posts a flush; returns the request's number, or 0 if no wait is needed. */
  static long iflush(long comm, int n, long data, long sizes, long memories) {
    try {
      int request = COMMS.get(comm).iflush(n, data, sizes, memories);
      return request == 0 ? 0 : comm | request;
    } catch (Throwable e) {
      return failed("iflush", e);
    }
  }

  /**
   * Tests a request; returns 1 if it is done, else 0. A done request writes its sizes, as ints, to
   * {@code sizes} unless that is 0.
   */
  static int test(long request, long sizes) {
    try {
      int number = (int) request & ((1 << SlotTable.USER_BITS) - 1);
      return COMMS.get(request).test(number, sizes) ? 1 : 0;
    } catch (Throwable e) {
      return failed("test", e);
    }
  }

  static int close(long comm) {
    return run("close", () -> COMMS.remove(comm).close());
  }

  static int closeListen(long listener) {
    return run("closeListen", () -> LISTENERS.remove(listener).close());
  }

  /** Runs a call that has no result of its own. */
  private static int run(String call, Runnable action) {
    try {
      action.run();
      return 0;
    } catch (Throwable e) {
      return failed(call, e);
    }
  }

  private static NetPlugin network() {
    NetPlugin now = network;
    if (now == null) {
      throw new NetMisuse("the network is not open: init was not called, or finalize was");
    }
    return now;
  }

  private static PointerType pointerType(int bit) {
    for (PointerType each : POINTER_TYPES) {
      if (each.bit() == bit) {
        return each;
      }
    }
    throw new NetMisuse("type=" + bit + " is no kind of memory");
  }

  private static int failed(String call, Throwable e) {
    NetResult result = NetResult.of(e);
    try {
      say(true, call + ": " + (e.getMessage() != null ? e.getMessage() : e));
      if (result == NetResult.INTERNAL_ERROR && !(e instanceof NetMisuse)) {
        LOG.error(call, e);
      }
    } catch (Throwable another) {
      // Logging failed, perhaps without memory left: the code is enough.
      return -result.code();
    }
    return -result.code();
  }

  private static void say(boolean warning, String text) {
    try {
      log(warning, text.getBytes(StandardCharsets.UTF_8));
    } catch (UnsatisfiedLinkError e) {
      // NCCL's log exists only if the C library has loaded this class.
      LOG.info(text);
    }
  }

  /** Writes a line to NCCL's log. The C library registers this method. */
  private static native void log(boolean warning, byte[] text);
}
