// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetMisuse;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import java.util.ArrayList;
import java.util.List;

/** Checks one end of a connection, for the thread that uses it. */
abstract class CheckedComm implements NetComm {
  private final CheckedNetPlugin plugin;
  private final NetComm comm;
  private final NetProperties properties;
  private final CheckedRequest[] requests;
  private final List<CheckedMemory> memories = new ArrayList<>();
  private final Lifecycle lifecycle = new Lifecycle(this);

  /** The number of requests that are not in flight; they are the first of {@link #requests}. */
  private int free;

  /**
   * Creates the checks of a comm.
   *
   * @param comm the comm to check
   * @param limit the most requests in flight
   * @param group the most messages of one request
   */
  CheckedComm(CheckedNetPlugin plugin, NetComm comm, int limit, int group) {
    this.plugin = plugin;
    this.comm = comm;
    this.properties = plugin.properties(comm.device());
    this.requests = new CheckedRequest[limit];
    for (int i = 0; i < limit; i++) {
      requests[i] = new CheckedRequest(this, group);
    }
    this.free = limit;
  }

  final NetProperties properties() {
    return properties;
  }

  @Override
  public final int device() {
    return comm.device();
  }

  @Override
  public final String peer() {
    return comm.peer();
  }

  final void requireOpen(String call) {
    plugin.requireOpen();
    if (lifecycle.isClosed()) {
      throw new NetMisuse(call + " on " + this + ", which is closed");
    }
  }

  /** Returns the request for the next operation; {@link #posted} then marks it as in flight. */
  final CheckedRequest next(String call) {
    requireOpen(call);
    if (free == 0) {
      throw NetMisuse.of(
          "%s on %s with %s requests in flight, which is all that there may be; test"
              + " them first",
          call, this, requests.length);
    }
    CheckedRequest request = requests[free - 1];
    request.clear();
    return request;
  }

  /**
   * Marks the request that {@link #next} returned as in flight and returns it. Returns null, and
   * leaves the request free, if the plugin started no operation.
   */
  final NetRequest posted(CheckedRequest request, NetRequest started) {
    if (started == null) {
      return null;
    }
    free--;
    request.start(started, free);
    return request;
  }

  /** Frees a request that is complete; the last request in flight takes its place in the array. */
  final void free(CheckedRequest request) {
    CheckedRequest last = requests[free];
    int place = request.place();
    requests[place] = last;
    last.move(place);
    requests[free++] = request;
  }

  /**
   * Refuses memory that this connection can't use, and a range that is outside the memory or too
   * large for the device.
   */
  final void checkRange(String call, NetMemory memory, long address, long size) {
    if (!(memory instanceof CheckedMemory)) {
      throw NetMisuse.of(
          "%s on %s: %s; give what register of this connection gave",
          call, this, memory == null ? "memory=null" : "foreign memory");
    }
    if (size < 0 || size > properties.maxBytes()) {
      throw new NetMisuse(
          call + " on " + this + ": size=" + size + "; give 0 to " + properties.maxBytes());
    }
    ((CheckedMemory) memory).check(call, this, address, size);
  }

  @Override
  public final NetMemory register(long address, long size, PointerType type) {
    checkRegistration(size, type, type);
    return keep(address, size, comm.register(address, size, type));
  }

  @Override
  public final NetMemory registerDmaBuf(
      long address, long size, PointerType type, long offset, int fileDescriptor) {
    checkRegistration(size, type, PointerType.DMABUF);
    if (offset < 0 || fileDescriptor < 0) {
      throw NetMisuse.of(
          "registerDmaBuf on %s: offset=%s, fileDescriptor=%s; neither is negative",
          this, offset, fileDescriptor);
    }
    return keep(address, size, comm.registerDmaBuf(address, size, type, offset, fileDescriptor));
  }

  private void checkRegistration(long size, PointerType type, PointerType needed) {
    requireOpen("register");
    if (size < 0) {
      throw new NetMisuse("register on " + this + ": size=" + size + "; give 0 or more");
    }
    if (type == PointerType.DMABUF || !properties.pointers().contains(needed)) {
      throw NetMisuse.of(
          "register on %s: type=%s; the device reaches %s", this, needed, properties.pointers());
    }
  }

  private NetMemory keep(long address, long size, NetMemory registered) {
    CheckedMemory memory = new CheckedMemory(this, address, size, registered);
    memories.add(memory);
    return memory;
  }

  final void forget(CheckedMemory memory) {
    memories.remove(memory);
  }

  /** Returns whether memory that is registered with the other comm can be used with this one. */
  final boolean shares(CheckedComm other) {
    return other == this
        || properties.regIsGlobal() && other.plugin == plugin && other.device() == device();
  }

  @Override
  public final void close() {
    if (!lifecycle.beginClose()) {
      return;
    }
    memories.forEach(CheckedMemory::end);
    memories.clear();
    comm.close();
  }

  @Override
  public final String toString() {
    return "a connection of " + plugin.name() + " with " + peer();
  }
}
