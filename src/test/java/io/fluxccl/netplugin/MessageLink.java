// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.HangLimit;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.function.Supplier;
import org.agrona.BufferUtil;

/** One connection of a network, both ends in this thread, each with memory of its own. */
public final class MessageLink implements AutoCloseable {
  public static final Duration LONG = Duration.ofSeconds(60);

  public final NetSendComm send;
  public final NetRecvComm receive;
  public final ByteBuffer source;
  public final ByteBuffer target;
  public final NetMemory sourceMemory;
  public final NetMemory targetMemory;

  public MessageLink(NetPlugin from, NetPlugin to, int bytes) {
    this(from, to, to.listen(0), bytes);
  }

  /** Closes the listener. */
  public MessageLink(NetPlugin from, NetPlugin to, NetListenComm listener, int bytes) {
    this(from, 0, listener, memory(bytes), memory(bytes));
  }

  /** Over a device of one network, between memory that is there. */
  public MessageLink(NetPlugin network, int device, ByteBuffer source, ByteBuffer target) {
    this(network, device, network.listen(device), source, target);
  }

  private MessageLink(
      NetPlugin from, int device, NetListenComm listener, ByteBuffer source, ByteBuffer target) {
    this.source = source;
    this.target = target;
    try (listener) {
      NetHandle handle = new NetHandle(listener.handle());
      NetSendComm sending = null;
      NetRecvComm receiving = null;
      long began = HangLimit.start();
      while (sending == null || receiving == null) {
        sending = sending == null ? from.connect(device, handle) : sending;
        receiving = receiving == null ? listener.accept() : receiving;
        HangLimit.check(began, "connected");
        Thread.yield();
      }
      send = sending;
      receive = receiving;
    }
    sourceMemory = send.register(address(source), source.capacity(), PointerType.HOST);
    targetMemory = receive.register(address(target), target.capacity(), PointerType.HOST);
  }

  /** Memory outside of the heap, little-endian. */
  public static ByteBuffer memory(int size) {
    return BufferUtil.allocateDirectAligned(Math.max(64, size), 64).order(ByteOrder.LITTLE_ENDIAN);
  }

  public static long address(ByteBuffer memory) {
    return BufferUtil.address(memory);
  }

  public NetRequest isend(int offset, int size) {
    return isend(offset, size, 0);
  }

  /** Sends once there is room for the request. */
  public NetRequest isend(int offset, int size, int tag) {
    long began = HangLimit.start();
    NetRequest request;
    do {
      request = send.isend(address(source) + offset, size, tag, sourceMemory);
      HangLimit.check(began, "the send is posted");
    } while (request == null);
    return request;
  }

  /** Receives once there is room for the request, which the peer may have to answer for. */
  public NetRequest irecv(int offset, int size) {
    long began = HangLimit.start();
    NetRequest request;
    do {
      request = receive.irecv(address(target) + offset, size, 0, targetMemory);
      HangLimit.check(began, "the receive is posted");
    } while (request == null);
    return request;
  }

  /** Moves one message, and returns its size as the receiver knows it. */
  public long move(int size) {
    NetRequest receiving = irecv(0, size);
    await(isend(0, size), receiving);
    return receiving.size(0);
  }

  /** Calls until there is something. */
  public static <T> T await(Supplier<T> call) {
    long began = HangLimit.start();
    T given = call.get();
    while (given == null) {
      HangLimit.check(began, "the call returns an object");
      given = call.get();
    }
    return given;
  }

  public static void await(NetRequest... requests) {
    long began = HangLimit.start();
    boolean[] done = new boolean[requests.length];
    for (int open = requests.length; open > 0; ) {
      for (int i = 0; i < requests.length; i++) {
        if (!done[i] && requests[i].test()) {
          done[i] = true;
          open--;
        }
      }
      HangLimit.check(began, "all requests are done");
      Thread.yield();
    }
  }

  public static void await(List<NetRequest> requests) {
    await(requests.toArray(NetRequest[]::new));
  }

  public static Throwable failureOf(NetRequest request) {
    return catchThrowable(() -> await(request));
  }

  /**
   * Moves messages of these sizes, all at once, in rounds that receive first or send first in turn,
   * and compares each byte.
   */
  public void moveAll(int[] sizes, int rounds) {
    int total = Arrays.stream(sizes).sum();
    for (int round = 0; round < rounds; round++) {
      for (int i = 0; i < total; i++) {
        source.put(i, (byte) (i * 7 + (i >> 8) + round));
        target.put(i, (byte) 0);
      }
      boolean receivesFirst = round % 2 == 0;
      NetRequest[] requests = new NetRequest[2 * sizes.length];
      for (int step = 0; step < 2; step++) {
        int offset = 0;
        for (int i = 0; i < sizes.length; i++) {
          requests[step * sizes.length + i] =
              step == 0 == receivesFirst ? irecv(offset, sizes[i]) : isend(offset, sizes[i]);
          offset += sizes[i];
        }
      }
      await(requests);
      assertThat(target).isEqualTo(source);
      for (int i = 0; i < requests.length; i++) {
        assertThat(requests[i].size(0)).isEqualTo(sizes[i % sizes.length]);
      }
    }
  }

  /**
   * Moves messages of 100 and 100 000 bytes, until a round allocates fewer bytes than {@code
   * bound}.
   *
   * @return how many bytes this thread has allocated in the best round
   */
  public long leastAllocated(long bound) {
    return AllocatedBytes.least(
        bound,
        () -> {
          for (int i = 0; i < 200; i++) {
            NetRequest receiving = irecv(0, 100_000);
            NetRequest sending = isend(0, i % 2 == 0 ? 100 : 100_000);
            while (!sending.test()) {
              Thread.yield();
            }
            while (!receiving.test()) {
              Thread.yield();
            }
          }
        });
  }

  @Override
  public void close() {
    send.close();
    receive.close();
  }
}
