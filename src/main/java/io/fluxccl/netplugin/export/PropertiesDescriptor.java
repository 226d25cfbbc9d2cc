// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.PointerType;
import java.nio.charset.StandardCharsets;
import org.agrona.UnsafeApi;

/** The layout of a device's properties for C: struct fluxccl_properties in native/ncclnet. */
final class PropertiesDescriptor {
  private static final int GUID = 0;
  private static final int MAX_BYTES = 8;
  private static final int POINTERS = 16;
  private static final int REG_IS_GLOBAL = 20;
  private static final int FORCE_FLUSH = 24;
  private static final int SPEED = 28;
  private static final int PORT = 32;
  private static final int LATENCY = 36;
  private static final int MAX_COMMS = 40;
  private static final int MAX_RECVS = 44;
  private static final int NAME = 48;
  private static final int NAME_LENGTH = 128;
  private static final int PCI_PATH = NAME + NAME_LENGTH;
  private static final int PCI_PATH_LENGTH = 512;

  private PropertiesDescriptor() {}

  static void put(long at, NetProperties properties) {
    UnsafeApi.putLong(at + GUID, properties.guid());
    UnsafeApi.putLong(at + MAX_BYTES, properties.maxBytes());
    int pointers = properties.pointers().stream().mapToInt(PointerType::bit).sum();
    UnsafeApi.putInt(at + POINTERS, pointers);
    UnsafeApi.putInt(at + REG_IS_GLOBAL, properties.regIsGlobal() ? 1 : 0);
    UnsafeApi.putInt(at + FORCE_FLUSH, properties.forceFlush() ? 1 : 0);
    UnsafeApi.putInt(at + SPEED, properties.speedMbps());
    UnsafeApi.putInt(at + PORT, properties.port());
    UnsafeApi.putInt(at + LATENCY, Float.floatToRawIntBits(properties.latencyMicros()));
    UnsafeApi.putInt(at + MAX_COMMS, properties.maxComms());
    UnsafeApi.putInt(at + MAX_RECVS, properties.maxRecvs());
    putText(at + NAME, NAME_LENGTH, properties.name());
    putText(at + PCI_PATH, PCI_PATH_LENGTH, properties.pciPath());
  }

  private static void putText(long at, int length, String text) {
    byte[] bytes = text == null ? new byte[0] : text.getBytes(StandardCharsets.UTF_8);
    for (int i = 0; i < length; i++) {
      // The text ends with a NUL, also if it is truncated.
      UnsafeApi.putByte(at + i, i < bytes.length && i < length - 1 ? bytes[i] : 0);
    }
  }
}
