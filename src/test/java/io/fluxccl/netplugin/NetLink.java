// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.function.Supplier;
import org.agrona.BufferUtil;

/** Both ends of one connection of a plugin, driven by one thread. */
public final class NetLink implements AutoCloseable {
  private static final Duration LONG = Duration.ofSeconds(60);

  public final NetSendComm sender;
  public final NetRecvComm receiver;
  private final NetListenComm listener;

  public NetLink(NetPlugin plugin, int device) {
    listener = plugin.listen(device);
    NetHandle handle = new NetHandle(listener.handle());
    NetSendComm[] sending = new NetSendComm[1];
    receiver =
        await(
            () -> {
              if (sending[0] == null) {
                sending[0] = plugin.connect(device, handle);
              }
              return listener.accept();
            });
    sender = sending[0] != null ? sending[0] : await(() -> plugin.connect(device, handle));
  }

  /** Calls until there is something. */
  public static <T> T await(Supplier<T> call) {
    long end = System.nanoTime() + LONG.toNanos();
    T given = call.get();
    while (given == null) {
      assertThat(System.nanoTime()).as("still nothing").isLessThan(end);
      given = call.get();
    }
    return given;
  }

  /** Tests two requests until both are done. */
  public static void finish(NetRequest a, NetRequest b) {
    boolean aDone = false;
    boolean bDone = false;
    long end = System.nanoTime() + LONG.toNanos();
    while (!aDone || !bDone) {
      aDone = aDone || a.test();
      bDone = bDone || b.test();
      assertThat(System.nanoTime()).as("not done").isLessThan(end);
    }
  }

  /** Memory outside of the heap, little-endian. */
  public static ByteBuffer memory(int size) {
    return BufferUtil.allocateDirectAligned(Math.max(64, size), 64).order(ByteOrder.LITTLE_ENDIAN);
  }

  public static long address(ByteBuffer memory) {
    return BufferUtil.address(memory);
  }

  @Override
  public void close() {
    listener.close();
    sender.close();
    receiver.close();
  }
}
