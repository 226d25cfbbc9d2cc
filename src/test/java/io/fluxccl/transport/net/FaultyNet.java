package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.NetRecvComm;
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

  /** Receiving ends don't register memory of so many bytes. */
  volatile long refusedReceivingSize;

  /** What is thrown instead where memory is not registered, or null. */
  volatile Error error;

  /** Whether it was closed. */
  volatile boolean closed;

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

  private void refuseToRegister(boolean refused) {
    if (refused && error != null) {
      throw error;
    }
    refuse(refused, "the memory can't be registered");
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
      refuseToRegister(size == refusedSize);
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

  private final class Receiver implements NetRecvComm {
    private final NetRecvComm comm;

    Receiver(NetRecvComm comm) {
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
      refuseToRegister(size == refusedReceivingSize);
      return comm.register(address, size, type);
    }

    @Override
    public NetMemory registerDmaBuf(
        long address, long size, PointerType type, long offset, int fileDescriptor) {
      return comm.registerDmaBuf(address, size, type, offset, fileDescriptor);
    }

    @Override
    public NetRequest irecv(long address, long size, int tag, NetMemory memory) {
      return comm.irecv(address, size, tag, memory);
    }

    @Override
    public NetRequest irecv(
        int n, long[] addresses, long[] sizes, int[] tags, NetMemory[] memories) {
      return comm.irecv(n, addresses, sizes, tags, memories);
    }

    @Override
    public NetRequest iflush(int n, long[] addresses, long[] sizes, NetMemory[] memories) {
      return comm.iflush(n, addresses, sizes, memories);
    }

    @Override
    public void close() {
      comm.close();
    }
  }

  private final class Listener implements NetListenComm {
    private final NetListenComm comm;

    Listener(NetListenComm comm) {
      this.comm = comm;
    }

    @Override
    public byte[] handle() {
      return comm.handle();
    }

    @Override
    public NetRecvComm accept() {
      NetRecvComm accepted = comm.accept();
      return accepted == null ? null : new Receiver(accepted);
    }

    @Override
    public void close() {
      comm.close();
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
    return new Listener(plugin.listen(device));
  }

  @Override
  public NetSendComm connect(int device, NetHandle handle) {
    NetSendComm comm = plugin.connect(device, handle);
    return comm == null ? null : new Sender(comm);
  }

  @Override
  public void close() {
    closed = true;
    plugin.close();
  }
}
