// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.NonblockingFuture;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;

/**
 * One rank's connection to one peer, with one buffer at each end: what most tests of channels start
 * from.
 */
public final class TestConnection {
  public final LocalRank rank;
  public final int peer;
  public final Connection connection;
  public final DeviceBuffer buffer;
  public final RegisteredMemory local;
  public final RegisteredMemory remote;

  /** Both ends call it. */
  public static TestConnection to(
      LocalRank rank, int peer, int tag, Transport transport, long size) {
    return to(rank, peer, tag, transport, rank.device().allocate(size));
  }

  /** Both ends call it, with buffers of their own. */
  public static TestConnection to(
      LocalRank rank, int peer, int tag, Transport transport, DeviceBuffer buffer) {
    return new TestConnection(rank, peer, tag, transport, buffer);
  }

  private TestConnection(
      LocalRank rank, int peer, int tag, Transport transport, DeviceBuffer mine) {
    this.rank = rank;
    this.peer = peer;
    buffer = mine;
    local = rank.communicator().registerMemory(buffer, TransportFlags.of(transport));
    NonblockingFuture<Connection> connected =
        rank.communicator().connectOnSetup(peer, tag, EndpointConfig.of(transport));
    rank.communicator().sendMemoryOnSetup(local, peer, tag);
    NonblockingFuture<RegisteredMemory> received = rank.communicator().recvMemoryOnSetup(peer, tag);
    rank.communicator().setup().join();
    connection = connected.join();
    remote = received.join();
  }

  public int getInt(long index) {
    return io.fluxccl.device.host.HostMemory.getInt(buffer.address() + index * Integer.BYTES);
  }

  public void putInt(long index, int value) {
    io.fluxccl.device.host.HostMemory.putInt(buffer.address() + index * Integer.BYTES, value);
  }
}
