package io.fluxccl.device.cuda;

import java.util.Arrays;

/**
 * What the driver loads: a cubin, a fat binary or PTX.
 *
 * @param bytes the image; PTX ends in a NUL, as the driver wants it
 */
record KernelImage(byte[] bytes) {
  /** ELF or a fat binary, which the driver tells apart. */
  static KernelImage binary(byte[] bytes) {
    return new KernelImage(bytes);
  }

  /** PTX text, with a NUL behind it if there is none yet. */
  static KernelImage ptx(byte[] bytes) {
    boolean ended = bytes.length > 0 && bytes[bytes.length - 1] == 0;
    return new KernelImage(ended ? bytes : Arrays.copyOf(bytes, bytes.length + 1));
  }

  /** Whether it is text that the driver compiles. */
  boolean isPtx() {
    return bytes.length > 0 && bytes[bytes.length - 1] == 0 && !isElf() && !isFatBinary();
  }

  /** Whether it begins as a cubin does. */
  boolean isElf() {
    return bytes.length > 4
        && bytes[0] == 0x7f
        && bytes[1] == 'E'
        && bytes[2] == 'L'
        && bytes[3] == 'F';
  }

  /** Whether it begins as a fat binary does. */
  boolean isFatBinary() {
    return bytes.length > 4
        && (bytes[0] & 0xff) == 0x50
        && (bytes[1] & 0xff) == 0xed
        && (bytes[2] & 0xff) == 0x55
        && (bytes[3] & 0xff) == 0xba;
  }
}
