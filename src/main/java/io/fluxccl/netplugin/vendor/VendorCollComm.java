package io.fluxccl.netplugin.vendor;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.netplugin.CollNetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import java.util.ArrayList;
import java.util.List;

/** A group of a vendor's collective network. Checks what it is given; reuses its requests. */
final class VendorCollComm implements CollNetComm {
  private static final int SIZE_T_REGISTRATIONS = 8;
  private static final int SIZE_T_COUNTS = 9;

  private final VendorCollNet net;
  private final long comm;
  private final NetProperties properties;
  private final CallGate gate;
  private final List<Registration> registrations = new ArrayList<>();
  private final Request[] free = new Request[NetPlugin.MAX_REQUESTS];
  private int freeCount = free.length;

  VendorCollComm(VendorCollNet net, long comm, NetProperties properties) {
    this.net = net;
    this.comm = comm;
    this.properties = properties;
    this.gate = new CallGate("a group of " + net, net.patience());
    for (int i = 0; i < free.length; i++) {
      free[i] = new Request();
    }
  }

  @Override
  public NetMemory register(long address, long size, PointerType type) {
    boolean tooLarge = size > Integer.MAX_VALUE && net.version() < SIZE_T_REGISTRATIONS;
    if (type == PointerType.DMABUF
        || !properties.pointers().contains(type)
        || size < 0
        || tooLarge) {
      throw InvalidUsage.of(
          "register with %s: size=%s, type=%s; the device reaches %s%s",
          net, size, type, properties.pointers(), tooLarge ? ", less than 2 GiB at once" : "");
    }
    gate.enter();
    try {
      long[] memory = new long[1];
      net.check(
          CollNetCalls.register(net.coll(), comm, address, size, type.bit(), memory), "regMr");
      Registration registration = new Registration(address, size, memory[0]);
      registrations.add(registration);
      return registration;
    } finally {
      gate.exit();
    }
  }

  @Override
  public NetRequest iallreduce(
      long from,
      long to,
      long count,
      DataType type,
      ReduceOp op,
      NetMemory fromMemory,
      NetMemory toMemory) {
    long limit = net.version() < SIZE_T_COUNTS ? Integer.MAX_VALUE : Long.MAX_VALUE / type.size();
    if (count < 1 || count > limit) {
      throw new InvalidUsage("iallreduce of " + net + ": count=" + count + "; give 1 to " + limit);
    }
    gate.enter();
    try {
      requireFree();
      long own = handleOf(fromMemory, from, count * type.size());
      long result = handleOf(toMemory, to, count * type.size());
      return started(
          CollNetCalls.iallreduce(
              net.coll(),
              comm,
              from,
              to,
              count,
              VendorCollNet.codeOf(type),
              VendorCollNet.codeOf(op),
              own,
              result),
          "iallreduce");
    } finally {
      gate.exit();
    }
  }

  @Override
  public NetRequest iflush(long address, long size, NetMemory memory) {
    gate.enter();
    try {
      requireFree();
      long registered = handleOf(memory, address, size);
      return started(CollNetCalls.iflush(net.coll(), comm, address, size, registered), "iflush");
    } finally {
      gate.exit();
    }
  }

  private void requireFree() {
    if (freeCount == 0) {
      throw new InvalidUsage(
          free.length + " requests are in flight in a group of " + net + ", which is all");
    }
  }

  private NetRequest started(long request, String call) {
    net.check(Math.min(0, request), call);
    if (request == 0) {
      return null;
    }
    Request started = free[--freeCount];
    started.request = request;
    started.inFlight = true;
    return started;
  }

  private long handleOf(NetMemory memory, long address, long size) {
    if (!(memory instanceof Registration) || !((Registration) memory).isOf(this)) {
      throw new InvalidUsage(
          "the memory is not registered with this group of " + net + ", or no longer");
    }
    Registration registration = (Registration) memory;
    long offset = address - registration.address;
    if (offset < 0 || size < 0 || size > registration.size - offset) {
      throw InvalidUsage.of(
          "offset=%s, size=%s is outside of the %s bytes that are registered",
          offset, size, registration.size);
    }
    return registration.handle;
  }

  @Override
  public void close() {
    gate.close(this::end);
  }

  private void end() {
    try {
      for (Registration registration : registrations) {
        CollNetCalls.deregister(net.coll(), comm, registration.handle);
      }
      registrations.clear();
      net.check(CollNetCalls.closeColl(net.coll(), comm), "closeColl");
    } finally {
      net.forget(this);
    }
  }

  private final class Registration implements NetMemory {
    private final long address;
    private final long size;
    private final long handle;
    private boolean closed;

    Registration(long address, long size, long handle) {
      this.address = address;
      this.size = size;
      this.handle = handle;
    }

    boolean isOf(VendorCollComm other) {
      return !closed && other == VendorCollComm.this;
    }

    @Override
    public void close() {
      // With its group it has gone already.
      if (closed || gate.isClosed()) {
        return;
      }
      gate.enter();
      try {
        closed = true;
        registrations.remove(this);
        net.check(CollNetCalls.deregister(net.coll(), comm, handle), "deregMr");
      } finally {
        gate.exit();
      }
    }
  }

  private final class Request implements NetRequest {
    private long request;
    private boolean inFlight;

    @Override
    public boolean test() {
      gate.enter();
      try {
        if (!inFlight) {
          throw new InvalidUsage("test of a request of a group of " + net + " that is over");
        }
        int result = CollNetCalls.test(net.coll(), request);
        if (result != 0) {
          inFlight = false;
          free[freeCount++] = this;
        }
        net.check(Math.min(0, result), "test");
        return result > 0;
      } finally {
        gate.exit();
      }
    }

    /** Plugins don't agree on what the size of a reduction is. */
    @Override
    public long size(int index) {
      return 0;
    }
  }
}
