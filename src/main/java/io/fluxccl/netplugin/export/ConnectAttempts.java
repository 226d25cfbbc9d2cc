// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetSendComm;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.agrona.UnsafeApi;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The connects in progress. NCCL repeats a connect with the same memory, so the address of the
 * handle identifies the connect. If the bytes at that address have changed, it is a new connect.
 */
final class ConnectAttempts {
  private static final Logger LOG = LoggerFactory.getLogger(ConnectAttempts.class);

  private final Map<Long, Attempt> attempts = new ConcurrentHashMap<>();

  private record Attempt(byte[] bytes, NetHandle handle) {}

  /** Connects as {@link NetPlugin#connect} does, with the handle at an address. */
  NetSendComm connect(NetPlugin network, int device, long address) {
    byte[] bytes = new byte[NetPlugin.HANDLE_BYTES];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = UnsafeApi.getByte(address + i);
    }
    Attempt attempt = attempts.get(address);
    if (attempt == null || !Arrays.equals(attempt.bytes, bytes)) {
      Attempt replaced = attempt;
      attempt = new Attempt(bytes, new NetHandle(bytes));
      attempts.put(address, attempt);
      if (replaced != null) {
        // NCCL does not poll the replaced connect any more.
        abandon(replaced);
      }
    }
    boolean pending = false;
    try {
      NetSendComm comm = network.connect(device, attempt.handle);
      pending = comm == null;
      return comm;
    } finally {
      if (!pending) {
        attempts.remove(address);
      }
    }
  }

  /** Abandons all connects. */
  void clear() {
    attempts.values().forEach(ConnectAttempts::abandon);
    attempts.clear();
  }

  private static void abandon(Attempt attempt) {
    try {
      attempt.handle.abandon();
    } catch (RuntimeException e) {
      LOG.warn("a connect can't be given up", e);
    }
  }
}
