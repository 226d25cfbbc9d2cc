package io.fluxccl.netplugin.export;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetResult;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;
import org.agrona.UnsafeApi;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What {@code libnccl-net-fluxccl.so} calls, on NCCL's threads. Objects are numbers here; addresses
 * are C's. Each method gives a result of its own that is 0 or more, or minus the code of a {@link
 * NetResult}: then NCCL's log says why. Nothing is thrown.
 *
 * <p>Sending, receiving and testing allocate nothing.
 */
public final class NetPluginExport {
  private static final Logger LOG = LoggerFactory.getLogger(NetPluginExport.class);
  private static final PointerType[] POINTER_TYPES = PointerType.values();

  private static final SlotTable<NetListenComm> LISTENERS = new SlotTable<>("listeners");
  private static final SlotTable<ExportedComm> COMMS = new SlotTable<>("connections");
  private static final ConnectAttempts ATTEMPTS = new ConnectAttempts();

  /** Guarded by the class, as is the number of its users. */
  private static volatile NetPlugin network;

  private static int users;
  private static boolean opening;

  private NetPluginExport() {}

  /**
   * One more user; the first opens the network that {@code FLUXCCL_NET} names, or else the best.
   *
   * @return how many devices it has
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
   * Opens a network and sees that it is there. One that loads NCCL's plugins may have come back
   * here, by an older library of FluxCCL that does not tell who it is.
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
          String.format(
              "network %s with %s devices, Java %s",
              opened.name(), opened.devices(), Runtime.version()));
      return opened;
    } finally {
      opening = false;
    }
  }

  /** One user less; the last closes the network. */
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

  /** Writes a device's properties to {@code out}, as {@link PropertiesDescriptor} says. */
  static int properties(int device, long out) {
    return run("getProperties", () -> PropertiesDescriptor.put(out, network().properties(device)));
  }

  /** Writes the handle to {@code handle}, and zeros behind it; gives the listener's number. */
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

  /** Gives the sending end's number, or 0: not yet. */
  static long connect(int device, long handle) {
    try {
      NetPlugin to = network();
      NetSendComm comm = ATTEMPTS.connect(to, device, handle);
      return comm == null ? 0 : COMMS.add(new ExportedComm(comm, to.properties(device).maxRecvs()));
    } catch (Throwable e) {
      return failed("connect", e);
    }
  }

  /** Gives the receiving end's number, or 0: not yet. */
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

  /** Gives the registration's number. */
  static long register(long comm, long address, long size, int type) {
    try {
      ExportedComm to = COMMS.get(comm);
      return to.add(to.comm().register(address, size, pointerType(type)));
    } catch (Throwable e) {
      return failed("regMr", e);
    }
  }

  /** Gives the registration's number. */
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

  /** Gives the request's number, or 0: not now. */
  static long isend(long comm, long address, long size, int tag, long memory) {
    try {
      int request = COMMS.get(comm).isend(address, size, tag, memory);
      return request == 0 ? 0 : comm | request;
    } catch (Throwable e) {
      return failed("isend", e);
    }
  }

  /** Gives the request's number, or 0: not now. Sizes are longs where {@code wide}, else ints. */
  static long irecv(
      long comm, int n, long data, long sizes, boolean wide, long tags, long memories) {
    try {
      int request = COMMS.get(comm).irecv(n, data, sizes, wide, tags, memories);
      return request == 0 ? 0 : comm | request;
    } catch (Throwable e) {
      return failed("irecv", e);
    }
  }

  /** Gives the request's number, or 0: there is nothing to wait for. */
  static long iflush(long comm, int n, long data, long sizes, long memories) {
    try {
      int request = COMMS.get(comm).iflush(n, data, sizes, memories);
      return request == 0 ? 0 : comm | request;
    } catch (Throwable e) {
      return failed("iflush", e);
    }
  }

  /** Gives 1 when done, and then writes its sizes, as ints, where {@code sizes} is not 0. */
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

  /** Runs what has no result of its own. */
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
      throw new InvalidUsage("the network is not open: init was not called, or finalize was");
    }
    return now;
  }

  private static PointerType pointerType(int bit) {
    for (PointerType each : POINTER_TYPES) {
      if (each.bit() == bit) {
        return each;
      }
    }
    throw new InvalidUsage("type=" + bit + " is no kind of memory");
  }

  private static int failed(String call, Throwable e) {
    NetResult result = NetResult.of(e);
    try {
      say(true, call + ": " + (e.getMessage() != null ? e.getMessage() : e));
      if (result == NetResult.INTERNAL_ERROR) {
        LOG.error(call, e);
      }
    } catch (Throwable another) {
      // Out of memory, perhaps: the code says enough.
      return -result.code();
    }
    return -result.code();
  }

  private static void say(boolean warning, String text) {
    try {
      log(warning, text.getBytes(StandardCharsets.UTF_8));
    } catch (UnsatisfiedLinkError e) {
      // Nobody but C has NCCL's log.
      LOG.info(text);
    }
  }

  /** Into NCCL's log; C registers it. */
  private static native void log(boolean warning, byte[] text);
}
