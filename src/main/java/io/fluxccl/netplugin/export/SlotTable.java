// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import io.fluxccl.Text;
import io.fluxccl.netplugin.NetMisuse;
import java.util.ArrayDeque;
import java.util.Arrays;

/**
 * A table of objects by number. A number is never 0 and is not reused when its object is removed,
 * so that a stale number is detected. The bits below {@link #USER_BITS} are left to the user.
 * Changes hold the table's lock; any thread reads without it.
 *
 * @param <T> the type of the objects
 */
final class SlotTable<T> {
  static final int USER_BITS = 20;

  private static final int INDEX_BITS = 20;
  private static final int GENERATION_BITS = 20;
  private static final long ALWAYS = 1L << (USER_BITS + INDEX_BITS + GENERATION_BITS);
  private static final int FIRST_LENGTH = 64;

  private final String what;
  private final ArrayDeque<Integer> free = new ArrayDeque<>();

  /**
   * Written again after each change of an element. This volatile write publishes the element; it
   * pairs with the read in {@link #get}.
   */
  private volatile Object[] objects = new Object[FIRST_LENGTH];

  private long[] numbers = new long[FIRST_LENGTH];
  private int used;

  /**
   * Creates an empty table.
   *
   * @param what the name of the objects, for messages
   */
  SlotTable(String what) {
    this.what = what;
  }

  /** Adds an object; returns its number, in which the user's bits are 0. */
  synchronized long add(T object) {
    Integer reused = free.poll();
    int index = reused != null ? reused : used++;
    if (index == 1 << INDEX_BITS) {
      used--;
      throw new NetMisuse("too many " + what + " are open: " + index);
    }
    Object[] now = objects;
    if (index == now.length) {
      now = Arrays.copyOf(now, 2 * now.length);
      numbers = Arrays.copyOf(numbers, now.length);
    }
    long generation = (numbers[index] >>> (USER_BITS + INDEX_BITS)) + 1;
    generation &= (1L << GENERATION_BITS) - 1;
    numbers[index] = ALWAYS | generation << (USER_BITS + INDEX_BITS) | (long) index << USER_BITS;
    now[index] = new Entry<>(numbers[index], object);
    objects = now;
    return numbers[index];
  }

  /** Returns the object of a number, whatever the user's bits are. */
  T get(long number) {
    int index = index(number);
    Object[] now = objects;
    Entry<T> entry = index < now.length ? entry(now[index]) : null;
    if (entry == null || entry.number != (number & -(1L << USER_BITS))) {
      throw new NetMisuse(Text.of("%#x is none of the %s, or was closed", number, what));
    }
    return entry.object;
  }

  synchronized T remove(long number) {
    T object = get(number);
    Object[] now = objects;
    now[index(number)] = null;
    objects = now;
    free.add(index(number));
    return object;
  }

  private static int index(long number) {
    return (int) (number >>> USER_BITS) & ((1 << INDEX_BITS) - 1);
  }

  @SuppressWarnings("unchecked")
  private static <T> Entry<T> entry(Object object) {
    return (Entry<T>) object;
  }

  private record Entry<T>(long number, T object) {}
}
