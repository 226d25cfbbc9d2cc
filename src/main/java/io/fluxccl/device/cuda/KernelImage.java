// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.util.Arrays;

/**
 * An image that the driver loads: a cubin, a fat binary or PTX.
 *
 * @param bytes the image; PTX ends in a NUL, as the driver requires
 */
record KernelImage(byte[] bytes) {
  private static final byte[] ELF = {0x7f, 'E', 'L', 'F'};
  private static final byte[] FAT_BINARY = {0x50, (byte) 0xed, 0x55, (byte) 0xba};

  /** Returns PTX text, with a NUL appended if it does not end in one. */
  static KernelImage ptx(byte[] bytes) {
    boolean ended = bytes.length > 0 && bytes[bytes.length - 1] == 0;
    return new KernelImage(ended ? bytes : Arrays.copyOf(bytes, bytes.length + 1));
  }

  /** Returns whether it is text that the driver compiles. */
  boolean isPtx() {
    return bytes.length > 0 && bytes[bytes.length - 1] == 0 && !isElf() && !isFatBinary();
  }

  /** Returns whether it begins as a cubin does. */
  boolean isElf() {
    return startsWith(ELF);
  }

  /** Returns whether it begins as a fat binary does. */
  boolean isFatBinary() {
    return startsWith(FAT_BINARY);
  }

  private boolean startsWith(byte[] magic) {
    return bytes.length > 4 && Arrays.equals(bytes, 0, 4, magic, 0, 4);
  }
}
