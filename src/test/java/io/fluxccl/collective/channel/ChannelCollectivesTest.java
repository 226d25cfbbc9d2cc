// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.ReduceOp.SUM;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.testing.Rounds;
import java.util.stream.Stream;
import org.junit.jupiter.params.provider.Arguments;

/** The contract on the host device. */
class ChannelCollectivesTest extends ChannelContract {
  @Override
  boolean onGpus() {
    return false;
  }

  @Override
  Stream<Arguments> jobs() {
    return Stream.of(
        Arguments.of(2, 1, 0),
        Arguments.of(3, 1, 0),
        Arguments.of(2, 2, 0),
        Arguments.of(3, 2, 0),
        Arguments.of(1, 3, 0),
        Arguments.of(2, 2, 1),
        Arguments.of(2, 2, 3),
        Arguments.of(2, 1, 2));
  }

  @Override
  boolean reduces(DataType type, ReduceOp op) {
    // Every type and every operation, but not all pairs, which tests on one host cover.
    return op.ordinal() == type.ordinal() % ReduceOp.values().length || Rounds.LONG && op == SUM;
  }

  @Override
  Stream<Arguments> allReduces() {
    return Stream.of(
        Arguments.of("ring", 2, 1, 1),
        Arguments.of("ring", 3, 1, 1),
        Arguments.of("ring", 2, 2, 3),
        Arguments.of("hierarchical", 2, 2, 1),
        Arguments.of("hierarchical", 2, 2, 2),
        Arguments.of("hierarchical", 2, 3, 3),
        Arguments.of("hierarchical", 3, 2, 1));
  }
}
