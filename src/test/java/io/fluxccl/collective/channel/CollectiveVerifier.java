// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.ParkingStepVerifier;
import io.fluxccl.testing.Rounds;
import java.time.Duration;
import java.util.Random;

/**
 * Runs collectives on memory whose content every rank can compute, and compares all bytes. In every
 * other call the memory is registered.
 */
final class CollectiveVerifier {
  private static final Duration LONG = Duration.ofSeconds(120);

  private final Collectives collectives;
  private final Device device;
  private final int nRanks;

  /**
   * Interval of the calls that run; all ranks skip the same calls. Without -Plong it is 5 on the
   * host device and 6 on emulated GPUs, which are slow. On real GPUs all calls run.
   */
  private final int every;

  private int round;

  CollectiveVerifier(Collectives collectives) {
    this.collectives = collectives;
    this.device = collectives.communicator().device();
    this.nRanks = collectives.topology().nRanks();
    boolean onHost = device.kind() == DeviceKind.HOST;
    this.every = Rounds.LONG ? 1 : EmulatedGpus.HERE ? 6 : onHost ? 5 : 1;
  }

  /** A collective, its element count and type, and its other arguments. */
  record Shape(Collective kind, int count, DataType type, ReduceOp op, int root, boolean inPlace) {
    static Shape of(Collective kind, int count) {
      return new Shape(kind, count, INT32, SUM, 0, false);
    }

    Shape rootedAt(int newRoot) {
      return new Shape(kind, count, type, op, newRoot, inPlace);
    }

    Shape with(DataType newType, ReduceOp newOp) {
      return new Shape(kind, count, newType, newOp, root, inPlace);
    }

    Shape made(boolean isInPlace) {
      return new Shape(kind, count, type, op, root, isInPlace);
    }
  }

  /** Runs the call on memory that starts {@code shift} elements after a cache line. */
  void run(Shape shape, int shift) {
    int seed = round++;
    if (seed > 0
        && (seed + seed / every + shape.count() + shape.type().ordinal() + nRanks) % every != 0) {
      return;
    }
    RandomCollectiveCase call =
        new RandomCollectiveCase(new Random(seed), nRanks, shape.kind(), 8)
            .with(shape.type(), shape.count(), shape.inPlace())
            .with(shape.op(), shape.root())
            .at(shift * shape.type().size(), 0);
    try (DeviceBuffer memory = device.allocate(call.memory());
        Registration known = seed % 2 == 1 ? collectives.register(memory).join() : null) {
      RandomCollectiveCase.Run run = call.on(collectives.topology().rank(), memory);
      ParkingStepVerifier.create(collectives.run(run.call), LONG).expectComplete().verify(LONG);
      run.verify();
    }
  }
}
