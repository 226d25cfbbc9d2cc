// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.collnet;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.channel.RailNetwork;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.host.SpinWait;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.vendor.CollNetComm;

/**
 * The group of one lane in a collective network, with slots for the pieces in flight: each has an
 * input and a result. Used by the lane's thread, in the same order on all ranks of the group.
 * Allocates nothing.
 */
final class CollNetSlots implements RailNetwork.Lane {
  private final Communicator communicator;
  private final CollNetComm comm;
  private final NetMemory memory;
  private final long address;
  private final int slotBytes;
  private final NetRequest[] requests = new NetRequest[SLOTS];
  private long posted;
  private long taken;

  /**
   * Creates a lane.
   *
   * @param memory the registration of the slots
   * @param address of the slots, inputs first
   */
  CollNetSlots(
      Communicator communicator, CollNetComm comm, NetMemory memory, long address, int slotBytes) {
    this.communicator = communicator;
    this.comm = comm;
    this.memory = memory;
    this.address = address;
    this.slotBytes = slotBytes;
  }

  /** Returns the bytes of all slots of a lane. */
  static long bytes(int slotBytes) {
    return 2L * SLOTS * slotBytes;
  }

  private int slot(long number) {
    return (int) (number % SLOTS);
  }

  @Override
  public long nextInput() {
    return address + (long) slot(posted) * slotBytes;
  }

  private long result(int slot) {
    return address + (long) (SLOTS + slot) * slotBytes;
  }

  @Override
  public boolean post(long count, DataType type, ReduceOp op) {
    int slot = slot(posted);
    try {
      for (int step = 0; step >= 0; step = waitOn(step)) {
        requests[slot] =
            comm.iallreduce(nextInput(), result(slot), count, type, op, memory, memory);
        if (requests[slot] != null) {
          posted++;
          return true;
        }
      }
    } catch (FluxCclException e) {
      communicator.abort(e);
    }
    return false;
  }

  @Override
  public long take() {
    int slot = slot(taken);
    try {
      for (int step = 0; step >= 0; step = waitOn(step)) {
        if (requests[slot].test()) {
          taken++;
          return result(slot);
        }
      }
    } catch (FluxCclException e) {
      communicator.abort(e);
    }
    return 0;
  }

  private int waitOn(int step) {
    return SpinWait.step(step, communicator.abortFlag().deviceAddress(), -1);
  }
}
