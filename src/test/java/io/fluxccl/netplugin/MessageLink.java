// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.HangLimit;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
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
    try (listener) {
      NetHandle handle = new NetHandle(listener.handle());
      NetSendComm sending = null;
      NetRecvComm receiving = null;
      long began = HangLimit.start();
      while (sending == null || receiving == null) {
        sending = sending == null ? from.connect(0, handle) : sending;
        receiving = receiving == null ? listener.accept() : receiving;
        HangLimit.check(began, "connected");
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

  public NetRequest isend(int offset, int size) {
    return send.isend(BufferUtil.address(source) + offset, size, 0, sourceMemory);
  }

  public NetRequest irecv(int offset, int size) {
    long address = BufferUtil.address(target) + offset;
    NetRequest request = receive.irecv(address, size, 0, targetMemory);
    long began = HangLimit.start();
    while (request == null) {
      // There may be no room until the peer has answered.
      HangLimit.check(began, "the receive is posted");
      request = receive.irecv(address, size, 0, targetMemory);
    }
    return request;
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
   * Moves messages of 100 and 100 000 bytes.
   *
   * @return how many bytes this thread has allocated in the best of ten rounds
   */
  public long leastAllocated() {
    return AllocatedBytes.least(
        10,
        () -> {
          for (int i = 0; i < 200; i++) {
            NetRequest receive = irecv(0, 100_000);
            NetRequest send = isend(0, i % 2 == 0 ? 100 : 100_000);
            while (!send.test()) {
              Thread.yield();
            }
            while (!receive.test()) {
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
