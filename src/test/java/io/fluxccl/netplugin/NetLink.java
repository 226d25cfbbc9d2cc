// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin;

import io.fluxccl.testing.HangLimit;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.function.Supplier;
import org.agrona.BufferUtil;

/** Both ends of one connection of a plugin, driven by one thread. */
public final class NetLink implements AutoCloseable {
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
    long began = HangLimit.start();
    T given = call.get();
    while (given == null) {
      HangLimit.check(began, "the call returns an object");
      given = call.get();
    }
    return given;
  }

  /** Tests two requests until both are done. */
  public static void finish(NetRequest a, NetRequest b) {
    boolean aDone = false;
    boolean bDone = false;
    long began = HangLimit.start();
    while (!aDone || !bDone) {
      aDone = aDone || a.test();
      bDone = bDone || b.test();
      HangLimit.check(began, "both requests are done");
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
