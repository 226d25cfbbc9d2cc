// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.AVG;
import static io.fluxccl.ReduceOp.MAX;
import static io.fluxccl.ReduceOp.MIN;
import static io.fluxccl.ReduceOp.PROD;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.collective.Collective.ALL_REDUCE;
import static io.fluxccl.collective.Collective.REDUCE;
import static io.fluxccl.collective.Collective.REDUCE_SCATTER;
import static io.fluxccl.testing.Outcomes.completes;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.CallShape;
import io.fluxccl.collective.CapturedPipeline;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.Bytes;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.IntUnaryOperator;
import org.junit.jupiter.api.Test;

/** Collectives by hosts on GPUs, real or emulated. */
abstract class HierarchyGpuContract extends HierarchyContract {
  /** Random values whose sums round; expects bits identical to the host device. */
  @Test
  void shouldProduceBitsIdenticalToTheHostDevice() {
    Map<String, byte[]> onGpus = results(LocalRanks.ofHostsOnGpus(2, 2));
    assertThat(onGpus).isNotEmpty();
    assertThat(onGpus).usingRecursiveComparison().isEqualTo(results(LocalRanks.ofHosts(2, 2)));
  }

  private static Map<String, byte[]> results(LocalRanks ranks) {
    Map<String, byte[]> results = new ConcurrentSkipListMap<>();
    run(
        ranks,
        byHosts(),
        (rank, collectives) -> {
          for (DataType type : DataType.values()) {
            for (Collective kind : List.of(ALL_REDUCE, REDUCE_SCATTER, REDUCE)) {
              for (ReduceOp op : List.of(SUM, other(type))) {
                if (PipeAlgorithm.HIERARCHICAL.reduces(type)) {
                  results.put(
                      kind + " " + type + " " + op + " on rank " + rank.rank(),
                      result(collectives, kind, type, op));
                }
              }
            }
          }
        });
    return results;
  }

  /** Returns an operation per type, so that all occur; AVG for floats, as it rounds most. */
  private static ReduceOp other(DataType type) {
    ReduceOp[] others = {AVG, PROD, MIN, MAX};
    return type.isFloatingPoint() ? AVG : others[type.ordinal() % others.length];
  }

  private static byte[] result(
      Collectives collectives, Collective kind, DataType type, ReduceOp op) {
    int nRanks = collectives.topology().nRanks();
    int count = 1003;
    int length = count * type.size();
    byte[] values = new byte[nRanks * length];
    new Random(31 * type.ordinal() + collectives.topology().rank()).nextBytes(values);
    if (type.isFloatingPoint()) {
      // Values below 2 and no NaNs, whose bits may differ.
      for (int i = type.size() - 1; i < values.length; i += type.size()) {
        values[i] &= (byte) 0xbf;
      }
    }
    try (DeviceBuffer in = collectives.communicator().device().allocate(values.length);
        DeviceBuffer out = collectives.communicator().device().allocate(length)) {
      in.upload(0, values);
      out.upload(0, new byte[length]);
      completes(collectives.run(new CallShape(kind, count, type, op, 3).on(in, out)));
      return Bytes.of(out);
    }
  }

  @Test
  void shouldReplayCollectivesByHosts() {
    int count = 20_001;
    run(
        hosts(2, 2),
        byHosts(),
        (rank, collectives) -> {
          Device device = rank.device();
          try (DeviceBuffer one = device.allocate(4L * count);
              DeviceBuffer all = device.allocate(16L * count);
              DeviceBuffer turned = device.allocate(16L * count);
              CapturedPipeline captured =
                  collectives
                      .pipeline()
                      .allGather(one, all, count, INT32)
                      .allToAll(all, turned, count, INT32)
                      .reduce(turned, all, 4L * count, INT32, SUM, 2)
                      .broadcast(all, 4L * count, INT32, 2)
                      .reduceScatter(all, one, count, INT32, SUM)
                      .capture()) {
            for (int round = 0; round < Rounds.of(3, 7); round++) {
              int first = round;
              one.upload(0, ints(count, i -> first + 10 * rank.rank() + i));
              completes(captured.run());
              // Each rank receives the sum of all ranks' values from every rank.
              assertThat(Bytes.of(one))
                  .isEqualTo(ints(count, i -> 4 * (4 * (first + i) + 60)).array());
            }
          }
        });
  }

  private static ByteBuffer ints(int count, IntUnaryOperator valueOf) {
    ByteBuffer ints = ByteBuffer.allocate(4 * count).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < count; i++) {
      ints.putInt(4 * i, valueOf.applyAsInt(i));
    }
    return ints;
  }
}
