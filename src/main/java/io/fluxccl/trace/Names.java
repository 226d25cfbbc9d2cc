// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import java.util.ArrayList;
import java.util.List;

/**
 * Names by number, so that a ring of numbers can hold them: 0 is the empty name. Packs a lane and
 * three numbers into a word. Thread-safe.
 */
final class Names {
  private static final int KIND_BITS = 8;
  private static final int TYPE_BITS = 8;
  private static final int ALGORITHM_BITS = 16;

  // Guarded by itself.
  private final List<String> names = new ArrayList<>(List.of(""));

  int number(String name) {
    synchronized (names) {
      int known = names.indexOf(name);
      if (known < 0) {
        known = names.size();
        names.add(name);
      }
      return known;
    }
  }

  String name(int number) {
    synchronized (names) {
      return number < names.size() ? names.get(number) : "";
    }
  }

  static long pack(int lane, int kind, int type, int algorithm) {
    return (long) lane << (KIND_BITS + TYPE_BITS + ALGORITHM_BITS)
        | (long) (kind & 0xff) << (TYPE_BITS + ALGORITHM_BITS)
        | (long) (type & 0xff) << ALGORITHM_BITS
        | (algorithm & 0xffff);
  }

  static int lane(long packed) {
    return (int) (packed >> (KIND_BITS + TYPE_BITS + ALGORITHM_BITS));
  }

  static int kind(long packed) {
    return (int) (packed >>> (TYPE_BITS + ALGORITHM_BITS)) & 0xff;
  }

  static int type(long packed) {
    return (int) (packed >>> ALGORITHM_BITS) & 0xff;
  }

  static int algorithm(long packed) {
    return (int) packed & 0xffff;
  }
}
