package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.netplugin.tcp.TcpNetPlugin;
import io.fluxccl.netplugin.tcp.TcpOptions;

/** The TCP network, whose sending ends refuse what they are told to. */
final class FaultyNet implements NetPlugin {
  private final NetPlugin plugin = new TcpNetPlugin(TcpOptions.DEFAULT.withInterfaces("lo"));

  /** Memory of so many bytes is not registered. */
  volatile long refusedSize;

  /** Registrations of so many bytes can't be ended. */
  volatile long stuckSize;

  /** Sending ends can't be closed, for a reason that no network should have. */
  volatile boolean closesBadly;

  private record Memory(NetMemory registered, Runnable beforeClose) implements NetMemory {
    @Override
    public void close() {
      beforeClose.run();
      registered.close();
    }
  }

  private static void refuse(boolean refused, String what) {
    if (refused) {
      throw new TransportFailure(FluxCclException.NO_RANK, what);
    }
  }

  private final class Sender implements NetSendComm {
    private final NetSendComm comm;

    Sender(NetSendComm comm) {
      this.comm = comm;
    }

    @Override
    public int device() {
      return comm.device();
    }

    @Override
    public String peer() {
      return comm.peer();
    }

    @Override
    public NetMemory register(long address, long size, PointerType type) {
      refuse(size == refusedSize, "the memory can't be registered");
      return new Memory(
          comm.register(address, size, type),
          () -> refuse(size == stuckSize, "the memory can't be deregistered"));
    }

    @Override
    public NetMemory registerDmaBuf(
        long address, long size, PointerType type, long offset, int fileDescriptor) {
      return comm.registerDmaBuf(address, size, type, offset, fileDescriptor);
    }

    @Override
    public NetRequest isend(long address, long size, int tag, NetMemory memory) {
      return comm.isend(address, size, tag, ((Memory) memory).registered());
    }

    @Override
    public void close() {
      comm.close();
      if (closesBadly) {
        throw new IllegalStateException("the sending end can't be closed");
      }
    }
  }

  @Override
  public String name() {
    return plugin.name();
  }

  @Override
  public int devices() {
    return plugin.devices();
  }

  @Override
  public NetProperties properties(int device) {
    return plugin.properties(device);
  }

  @Override
  public NetListenComm listen(int device) {
    return plugin.listen(device);
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    NetSendComm comm = plugin.connect(device, handle);
    return comm == null ? null : new Sender(comm);
  }

  @Override
  public void close() {
    plugin.close();
  }
}
