// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;
import org.agrona.UnsafeApi;

/**
 * Accesses memory by address, for kernels of the host device and for transports within a host. Does
 * not check bounds; the caller must. Names state the memory order. A release store of a word pairs
 * with an acquire load of the same word.
 */
@Experimental
public final class HostMemory {
  private HostMemory() {}

  /** Plain load of 4 bytes. */
  public static int getInt(long address) {
    return UnsafeApi.getInt(address);
  }

  /** Plain store of 4 bytes. */
  public static void putInt(long address, int value) {
    UnsafeApi.putInt(address, value);
  }

  /** Plain load of a float. */
  public static float getFloat(long address) {
    return UnsafeApi.getFloat(address);
  }

  /** Plain store of a float. */
  public static void putFloat(long address, float value) {
    UnsafeApi.putFloat(address, value);
  }

  /** Plain load of 8 bytes. */
  public static long getLong(long address) {
    return UnsafeApi.getLong(address);
  }

  /** Plain store of 8 bytes. */
  public static void putLong(long address, long value) {
    UnsafeApi.putLong(address, value);
  }

  /** Load of 8 bytes with acquire: writes before the matching release are visible after it. */
  public static long getLongAcquire(long address) {
    return UnsafeApi.getLongAcquire(null, address);
  }

  /** Load of 8 bytes that is atomic and in order with itself only. */
  public static long getLongOpaque(long address) {
    return UnsafeApi.getLongOpaque(null, address);
  }

  /** Store of 8 bytes that is atomic and in order with itself only. */
  public static void putLongOpaque(long address, long value) {
    UnsafeApi.putLongOpaque(null, address, value);
  }

  /** Load of 4 bytes, as {@link #getLongOpaque}. */
  public static int getIntOpaque(long address) {
    return UnsafeApi.getIntOpaque(null, address);
  }

  /** Store of 4 bytes, as {@link #putLongOpaque}. */
  public static void putIntOpaque(long address, int value) {
    UnsafeApi.putIntOpaque(null, address, value);
  }

  /** Load of 2 bytes, as {@link #getLongOpaque}. */
  public static short getShortOpaque(long address) {
    return UnsafeApi.getShortOpaque(null, address);
  }

  /** Store of 2 bytes, as {@link #putLongOpaque}. */
  public static void putShortOpaque(long address, short value) {
    UnsafeApi.putShortOpaque(null, address, value);
  }

  /** Load of a byte, as {@link #getLongOpaque}. */
  public static byte getByteOpaque(long address) {
    return UnsafeApi.getByteOpaque(null, address);
  }

  /** Store of a byte, as {@link #putLongOpaque}. */
  public static void putByteOpaque(long address, byte value) {
    UnsafeApi.putByteOpaque(null, address, value);
  }

  /**
   * Store of 8 bytes with release: everything written before is visible to threads that load it
   * with acquire.
   */
  public static void putLongRelease(long address, long value) {
    UnsafeApi.putLongRelease(null, address, value);
  }

  /** Atomic add with a full fence. Returns the previous value. */
  public static long getAndAddLong(long address, long delta) {
    return UnsafeApi.getAndAddLong(null, address, delta);
  }

  /** Copies bytes; the ranges may overlap. */
  public static void copy(long target, long source, long size) {
    UnsafeApi.copyMemory(source, target, size);
  }

  /** Sets bytes. */
  public static void fill(long target, long size, byte value) {
    UnsafeApi.setMemory(target, size, value);
  }
}
