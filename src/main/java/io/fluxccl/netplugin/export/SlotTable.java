package io.fluxccl.netplugin.export;

import io.fluxccl.InvalidUsage;
import java.util.ArrayDeque;
import java.util.Arrays;

/**
 * Objects by number. A number is never 0 and is not used again when its object is gone, so that one
 * that outlives its object is noticed. Bits of it are left to the user, below {@link #USER_BITS}.
 * Changed under its lock; read by any thread without.
 *
 * @param <T> what it holds
 */
final class SlotTable<T> {
  static final int USER_BITS = 12;

  private static final int INDEX_BITS = 24;
  private static final int GENERATION_BITS = 24;
  private static final long ALWAYS = 1L << (USER_BITS + INDEX_BITS + GENERATION_BITS);
  private static final int FIRST_LENGTH = 64;

  private final String what;
  private final ArrayDeque<Integer> free = new ArrayDeque<>();

  /** Written again after each change of an element, which publishes that. */
  private volatile Object[] objects = new Object[FIRST_LENGTH];

  private long[] numbers = new long[FIRST_LENGTH];
  private int used;

  /**
   * @param what it holds, for messages
   */
  SlotTable(String what) {
    this.what = what;
  }

  /** Takes an object; gives its number, with the user's bits 0. */
  synchronized long add(T object) {
    Integer reused = free.poll();
    int index = reused != null ? reused : used++;
    if (index == 1 << INDEX_BITS) {
      used--;
      throw new InvalidUsage("too many " + what + " are open: " + index);
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

  /** The object with a number, whatever the user's bits are. */
  T get(long number) {
    int index = index(number);
    Object[] now = objects;
    Entry<T> entry = index < now.length ? entry(now[index]) : null;
    if (entry == null || entry.number != (number & -(1L << USER_BITS))) {
      throw new InvalidUsage(String.format("%#x is none of the %s, or was closed", number, what));
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
