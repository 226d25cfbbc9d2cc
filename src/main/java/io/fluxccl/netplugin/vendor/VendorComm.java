package io.fluxccl.netplugin.vendor;

import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.PointerType;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.agrona.BufferUtil;

/**
 * An end of a connection of a vendor's plugin. Requests are kept and used again, so that posting
 * and testing allocate nothing.
 */
abstract class VendorComm implements NetComm {
  private static final int SIZE_T_REGISTRATIONS = 8;
  private static final int MIN_SIZES = 8;

  private final VendorPlugin plugin;
  private final int device;
  private final long comm;
  private final CallGate gate;

  // All below is used inside the gate.
  private final List<Registration> registrations = new ArrayList<>();
  private final ByteBuffer sizes;
  private final VendorRequest[] free;
  private int freeCount;

  /**
   * @param requests how many can be in flight
   * @param sizesEach how many sizes a request has
   */
  VendorComm(VendorPlugin plugin, int device, long comm, int requests, int sizesEach) {
    this.plugin = plugin;
    this.device = device;
    this.comm = comm;
    this.gate = new CallGate("a connection of " + plugin, plugin.patience());
    // Room for what a plugin writes that always writes a group's.
    int places = Math.max(MIN_SIZES, sizesEach);
    this.sizes = BufferUtil.allocateDirectAligned(requests * places * Integer.BYTES, 64);
    this.free = new VendorRequest[requests];
    for (int i = 0; i < requests; i++) {
      long address = BufferUtil.address(sizes) + (long) i * places * Integer.BYTES;
      free[i] = new VendorRequest(this, address, places);
    }
    this.freeCount = requests;
  }

  final VendorPlugin plugin() {
    return plugin;
  }

  final long comm() {
    return comm;
  }

  final CallGate gate() {
    return gate;
  }

  @Override
  public final int device() {
    return device;
  }

  @Override
  public final String peer() {
    return "the peer on " + plugin.properties(device).name();
  }

  /** The object for a request that the plugin gave; null when it gave none. Inside the gate. */
  final VendorRequest started(long request, boolean hasSizes, String call) {
    plugin.check(request, call);
    if (request == 0) {
      return null;
    }
    VendorRequest started = free[--freeCount];
    started.start(request, hasSizes);
    return started;
  }

  /** Refuses to post more than there are objects for. Inside the gate. */
  final void requireFree() {
    if (freeCount == 0) {
      throw new InvalidUsage(
          free.length + " requests are in flight on a connection of " + plugin + ", which is all");
    }
  }

  final void free(VendorRequest request) {
    free[freeCount++] = request;
  }

  @Override
  public final NetMemory register(long address, long size, PointerType type) {
    if (size > Integer.MAX_VALUE && plugin.version() < SIZE_T_REGISTRATIONS) {
      throw new InvalidUsage(
          plugin + " registers less than 2 GiB at once, not " + size + " bytes; register pieces");
    }
    gate.enter();
    try {
      long[] memory = new long[1];
      plugin.check(
          NetPluginCalls.register(plugin.plugin(), comm, address, size, type.bit(), memory),
          "regMr of " + size + " bytes of " + type + " memory");
      return keep(memory[0]);
    } finally {
      gate.exit();
    }
  }

  @Override
  public final NetMemory registerDmaBuf(
      long address, long size, PointerType type, long offset, int fileDescriptor) {
    gate.enter();
    try {
      long[] memory = new long[1];
      plugin.check(
          NetPluginCalls.registerDmaBuf(
              plugin.plugin(), comm, address, size, type.bit(), offset, fileDescriptor, memory),
          "regMrDmaBuf of " + size + " bytes of " + type + " memory");
      return keep(memory[0]);
    } finally {
      gate.exit();
    }
  }

  private NetMemory keep(long memory) {
    Registration registration = new Registration(memory);
    registrations.add(registration);
    return registration;
  }

  /** The plug-in's handle of that memory. */
  static long handleOf(NetMemory memory) {
    return ((Registration) memory).handle;
  }

  @Override
  public final void close() {
    gate.close(this::end);
  }

  private void end() {
    try {
      for (Registration registration : registrations) {
        NetPluginCalls.deregister(plugin.plugin(), comm, registration.handle);
      }
      registrations.clear();
      closeComm();
    } finally {
      // Not before: the plugin is unloaded once it knows of nothing that is open.
      plugin.forget(this);
    }
  }

  abstract void closeComm();

  private final class Registration implements NetMemory {
    private final long handle;
    private boolean closed;

    Registration(long handle) {
      this.handle = handle;
    }

    @Override
    public void close() {
      // With its comm it has gone already.
      if (closed || gate.isClosed()) {
        return;
      }
      gate.enter();
      try {
        closed = true;
        registrations.remove(this);
        plugin.check(NetPluginCalls.deregister(plugin.plugin(), comm, handle), "deregMr");
      } finally {
        gate.exit();
      }
    }
  }
}
