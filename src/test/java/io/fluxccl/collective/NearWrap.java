// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.device.DeviceBuffer;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;

/**
 * Creates collectives of GPUs whose 32-bit epochs are close to their wrap. The second launch of
 * each region from now wraps around.
 */
public final class NearWrap {
  private static final int LAST_BUT_ONE = -2;
  private static final int BLOCKS = 160;

  private NearWrap() {}

  /** Sets the epochs of new collectives on this rank; each rank calls it before its first call. */
  public static Collectives of(Collectives collectives) {
    ByteBuffer epochs = ByteBuffer.allocate(BLOCKS * Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    while (epochs.hasRemaining()) {
      epochs.putInt(LAST_BUT_ONE);
    }
    try {
      AlgorithmSelector selector = collectives.lane.algorithms;
      for (Object set : (List<?>) field(AlgorithmSelector.class, "sets").get(selector)) {
        if (set.getClass().getPackageName().endsWith(".cuda")) {
          DeviceBuffer state = (DeviceBuffer) field(set.getClass(), "state").get(set);
          for (long region : (long[]) field(set.getClass(), "offsets").get(set)) {
            state.upload(region, epochs.array());
          }
        }
      }
    } catch (ReflectiveOperationException e) {
      throw new AssertionError("a family keeps its state elsewhere now", e);
    }
    return collectives;
  }

  private static Field field(Class<?> type, String name) throws NoSuchFieldException {
    Field field = type.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }
}
