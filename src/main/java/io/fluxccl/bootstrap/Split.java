// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.BootstrapFrameCodec.Limits;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

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

  /** One rank's splits, as they are sent: the description, and the choice for each. */
  record Sent(@Limits(most = MAX_DESCRIPTION_BYTES) String description, List<Choice> choices) {}

  record Choice(int color, int key) {}

  static byte[] encode(List<Split> splits) {
    List<Choice> choices =
        splits.stream().map(split -> new Choice(split.color, split.key)).toList();
    return BootstrapFrameCodec.write(new WireWriter(), new Sent(describe(splits), choices))
        .toBytes();
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
      WireReader in = WireReader.ofPeer(messages.get(rank), "split", rank);
      Sent sent = BootstrapFrameCodec.read(Sent.class, in);
      in.end();
      first = first == null ? sent.description : first;
      if (!sent.description.equals(first)) {
        throw InvalidUsage.of(
            "rank 0 calls %s, rank %s calls %s; give the same names and sizes on all ranks",
            first, rank, sent.description);
      }
      List<Choice> choices = sent.choices;
      in.check(choices.size() == own.size(), "choices", Integer.toString(choices.size()));
      all.add(
          IntStream.range(0, own.size()).mapToObj(i -> own.get(i).chosen(choices.get(i))).toList());
    }
    return all;
  }

  private Split chosen(Choice choice) {
    return new Split(name, choice.color, choice.key, size);
  }
}
