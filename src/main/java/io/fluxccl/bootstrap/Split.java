// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/**
 * One rank's part in forming sub-groups. Ranks of one colour form a group, ordered by key, then by
 * rank. Immutable.
 *
 * @param name of the sub-groups, the same on every rank, for messages: up to 64 letters, digits,
 *     dots, dashes and underscores; empty for a name by number
 * @param color which group; negative: none
 * @param key the place within the group
 * @param size how many ranks every group must have, the same on every rank; 0: any number
 */
@Experimental
public record Split(String name, int color, int key, int size) {
  private static final int MAX_DESCRIPTION_BYTES = 1 << 16;

  /** Refuses a name of odd characters and a negative size. */
  public Split {
    if (name == null || !name.matches("[A-Za-z0-9._-]{0,64}")) {
      throw InvalidUsage.of(
          "split(name=%s); give up to 64 letters, digits, dots, dashes and underscores", name);
    }
    if (size < 0) {
      throw InvalidUsage.of("split(name=%s, size=%s); give 0 or more", name, size);
    }
  }

  /** Returns what must be the same on every rank, for messages. */
  static String describe(List<Split> splits) {
    return splits.stream()
        .map(split -> split.name + (split.size > 0 ? ":" + split.size : ""))
        .collect(Collectors.joining(", ", "split(", ")"));
  }

  static byte[] encode(List<Split> splits) {
    byte[] description = describe(splits).getBytes(StandardCharsets.UTF_8);
    WireWriter out = new WireWriter().int32(description.length).raw(description);
    splits.forEach(split -> out.int32(split.color).int32(split.key));
    return out.toBytes();
  }

  /**
   * Returns the splits of all ranks.
   *
   * @param own this rank's
   * @param messages what the ranks sent, by rank
   * @return by rank
   * @throws InvalidUsage if the ranks differ in what must be the same, the same on every rank
   */
  static List<List<Split>> decode(List<Split> own, List<byte[]> messages) {
    String first = null;
    List<List<Split>> all = new ArrayList<>();
    for (int rank = 0; rank < messages.size(); rank++) {
      int sender = rank;
      WireReader in =
          new WireReader(
              messages.get(rank),
              problem -> TransportFailure.of(sender, "malformed split: %s", problem));
      byte[] text = in.raw("description", in.int32("length", 0, MAX_DESCRIPTION_BYTES));
      String description = new String(text, StandardCharsets.UTF_8);
      first = first == null ? description : first;
      if (!description.equals(first)) {
        throw InvalidUsage.of(
            "rank 0 calls %s, rank %s calls %s; give the same names and sizes on all ranks",
            first, rank, description);
      }
      List<Split> theirs = new ArrayList<>();
      for (Split split : own) {
        theirs.add(new Split(split.name, in.int32("color"), in.int32("key"), split.size));
      }
      in.end();
      all.add(theirs);
    }
    return all;
  }
}
