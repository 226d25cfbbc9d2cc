package io.fluxccl.netplugin.ib;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
import java.nio.ByteBuffer;
import java.time.Duration;
import org.agrona.BufferUtil;

/** One connection, both ends in this thread, each with memory of its own. */
final class IbNetLink implements AutoCloseable {
  static final Duration LONG = Duration.ofSeconds(60);

  final NetSendComm send;
  final NetRecvComm receive;
  final ByteBuffer source;
  final ByteBuffer target;
  final NetMemory sourceMemory;
  final NetMemory targetMemory;

  IbNetLink(IbNetPlugin from, IbNetPlugin to, int bytes) {
    this(from, to, to.listen(0), bytes);
  }

  /** Closes the listener. */
  IbNetLink(IbNetPlugin from, IbNetPlugin to, NetListenComm listener, int bytes) {
    try (listener) {
      NetHandle handle = new NetHandle(listener.handle());
      NetSendComm sending = null;
      NetRecvComm receiving = null;
      long start = System.nanoTime();
      while (sending == null || receiving == null) {
        sending = sending == null ? from.connect(0, handle) : sending;
        receiving = receiving == null ? listener.accept() : receiving;
        assertThat(System.nanoTime() - start).isLessThan(LONG.toNanos());
        Thread.yield();
      }
      send = sending;
      receive = receiving;
    }
    source = BufferUtil.allocateDirectAligned(bytes, 64);
    target = BufferUtil.allocateDirectAligned(bytes, 64);
    sourceMemory = send.register(BufferUtil.address(source), bytes, PointerType.HOST);
    targetMemory = receive.register(BufferUtil.address(target), bytes, PointerType.HOST);
  }

  NetRequest isend(int offset, int size) {
    return send.isend(BufferUtil.address(source) + offset, size, 0, sourceMemory);
  }

  NetRequest irecv(int offset, int size) {
    long address = BufferUtil.address(target) + offset;
    NetRequest request = receive.irecv(address, size, 0, targetMemory);
    for (long start = System.nanoTime(); request == null; ) {
      // The send queue is full until the peer's device has answered.
      assertThat(System.nanoTime() - start).isLessThan(LONG.toNanos());
      request = receive.irecv(address, size, 0, targetMemory);
    }
    return request;
  }

  static void await(NetRequest... requests) {
    long start = System.nanoTime();
    boolean[] done = new boolean[requests.length];
    for (int open = requests.length; open > 0; ) {
      for (int i = 0; i < requests.length; i++) {
        if (!done[i] && requests[i].test()) {
          done[i] = true;
          open--;
        }
      }
      assertThat(System.nanoTime() - start).isLessThan(LONG.toNanos());
      Thread.yield();
    }
  }

  static Throwable failureOf(NetRequest request) {
    return catchThrowable(() -> await(request));
  }

  @Override
  public void close() {
    send.close();
    receive.close();
  }
}
