// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.InvalidUsage;
import java.util.Arrays;

/**
 * The arguments of one kernel launch, by position: numbers, buffers and views (their address),
 * abort flags (their address), {@link DeviceHandle}s (by value), and on the host device any object.
 * Immutable.
 */
public final class KernelArgs {
  /** No arguments. */
  public static final KernelArgs NONE = new KernelArgs();

  private final Object[] values;

  private KernelArgs(Object... values) {
    this.values = values;
  }

  /**
   * Returns the given values in order; of a {@link DeviceView}, its buffer.
   *
   * @param values none of them null
   * @return the arguments
   * @throws InvalidUsage if one is null
   */
  public static KernelArgs of(Object... values) {
    Object[] copy = values.clone();
    for (int i = 0; i < copy.length; i++) {
      if (copy[i] == null) {
        throw new InvalidUsage("kernel argument " + i + " is null");
      }
      if (copy[i] instanceof DeviceView view) {
        copy[i] = view.buffer();
      }
    }
    return new KernelArgs(copy);
  }

  /** Returns the number of arguments. */
  public int count() {
    return values.length;
  }

  /**
   * Returns the value at a position.
   *
   * @param index from 0
   * @param type the class that the value must have
   * @param <T> that type
   * @return the value
   * @throws InvalidUsage if there is no such argument or it has another type
   */
  public <T> T get(int index, Class<T> type) {
    if (index < 0 || index >= values.length || !type.isInstance(values[index])) {
      throw new InvalidUsage(
          "kernel argument " + index + " is no " + type.getSimpleName() + " in " + this);
    }
    return type.cast(values[index]);
  }

  /** Returns the int at a position; throws {@link InvalidUsage} if it is none. */
  public int getInt(int index) {
    return get(index, Integer.class);
  }

  /** Returns the long or int at a position; throws {@link InvalidUsage} if it is none. */
  public long getLong(int index) {
    Number value = get(index, Number.class);
    if (!(value instanceof Long || value instanceof Integer)) {
      throw new InvalidUsage("kernel argument " + index + " is no integer in " + this);
    }
    return value.longValue();
  }

  @Override
  public String toString() {
    return "KernelArgs" + Arrays.toString(values);
  }
}
