// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Split;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The ranks of a group in several dimensions, such as tensor x pipeline x data. The ranks of the
 * first dimension's groups are neighbours. In {@code Grid.of("tensor", 2).by("pipeline", 3)}, for
 * example, ranks 0 and 1 are a tensor group, and ranks 0, 2 and 4 are a pipeline group. Immutable.
 *
 * @param sizes how many ranks a group of each dimension has, by the dimension's name, in order
 */
public record Grid(Map<String, Integer> sizes) {
  /** Refuses a size below 1. */
  public Grid {
    sizes = Collections.unmodifiableMap(new LinkedHashMap<>(sizes));
    for (Map.Entry<String, Integer> each : sizes.entrySet()) {
      if (each.getValue() < 1) {
        throw InvalidUsage.of(
            "grid: %s has size %s; give 1 or more", each.getKey(), each.getValue());
      }
    }
  }

  /**
   * Returns a grid of one dimension.
   *
   * @param name as in {@link Split}, not empty
   * @param size 1 or more
   */
  public static Grid of(String name, int size) {
    return new Grid(Map.of()).by(name, size);
  }

  /**
   * Returns this grid with one dimension more.
   *
   * @param name that no other dimension has
   * @param size 1 or more
   */
  public Grid by(String name, int size) {
    Map<String, Integer> more = new LinkedHashMap<>(sizes);
    if (name == null || name.isEmpty() || more.put(name, size) != null) {
      throw InvalidUsage.of("grid: name=%s; give each dimension a name of its own", name);
    }
    return new Grid(more);
  }

  /** Returns a rank's part in forming the groups, by dimension. */
  List<Split> splits(int rank, int nRanks) {
    int count = sizes.values().stream().reduce(1, Math::multiplyExact);
    if (count != nRanks) {
      throw InvalidUsage.of("%s has %s places, and the group %s ranks", this, count, nRanks);
    }
    List<Split> splits = new ArrayList<>();
    int stride = 1;
    for (Map.Entry<String, Integer> each : sizes.entrySet()) {
      int size = each.getValue();
      int place = rank / stride % size;
      splits.add(new Split(each.getKey(), rank - place * stride, place, size));
      stride *= size;
    }
    return splits;
  }
}
