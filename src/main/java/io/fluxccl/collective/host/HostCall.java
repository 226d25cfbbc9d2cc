package io.fluxccl.collective.host;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostBuffer;
import io.fluxccl.device.host.SharedSegment;

/**
 * A call as the kernel gets it. Immutable, so that a recording may run it again and again.
 *
 * @param call what
 * @param nRanks among how many
 * @param way how
 * @param input where this rank's input is; 0 if there is none
 * @param output where this rank's output is; 0 if there is none
 * @param inputRegistration that the input lies in, or null
 * @param outputRegistration that the output lies in, or null
 * @param inputSegment that the input lies in, if others may map it and it is not registered, or
 *     null
 * @param outputSegment that the output lies in, likewise
 */
record HostCall(
    CollectiveCall call,
    int nRanks,
    Way way,
    long input,
    long output,
    Registration inputRegistration,
    Registration outputRegistration,
    SharedSegment inputSegment,
    SharedSegment outputSegment) {

  /** How large calls are done. */
  enum Way {
    /** All inputs to everybody who needs them, through pipes. */
    ONE_SHOT,
    /** Through pipes, reductions in two phases. */
    STAGED,
    /** On each other's memory where it is registered, through pipes where it isn't. */
    DIRECT
  }

  static HostCall of(BoundCall bound, Way way) {
    CollectiveCall call = bound.call();
    return new HostCall(
        call,
        bound.nRanks(),
        way,
        call.input() == null ? 0 : call.input().address(),
        call.output() == null ? 0 : call.output().address(),
        bound.inputRegistration(),
        bound.outputRegistration(),
        bound.inputRegistration() == null ? segment(call.input()) : null,
        bound.outputRegistration() == null ? segment(call.output()) : null);
  }

  private static SharedSegment segment(DeviceBuffer buffer) {
    return buffer instanceof HostBuffer host && host.segment().isOwned() ? host.segment() : null;
  }

  /** The registration of that id, which this rank's input or output lies in. */
  Registration registration(int id) {
    return inputRegistration != null && inputRegistration.id() == id
        ? inputRegistration
        : outputRegistration;
  }

  /** Whether what arrives overwrites what is still to be sent. */
  boolean swaps() {
    return call.collective() == Collective.ALL_TO_ALL && input == output;
  }

  /**
   * Says of this rank's buffers what a peer needs to know.
   *
   * @param inputAt where in the input it may read
   * @param outputAt where in the output it may write
   * @param card gets it
   */
  void describe(long inputAt, long outputAt, Card card) {
    card.inputId = inputRegistration == null ? Card.NONE : inputRegistration.id();
    card.outputId = outputRegistration == null ? Card.NONE : outputRegistration.id();
    card.inputOffset =
        inputRegistration == null ? 0 : input - inputRegistration.buffer().address() + inputAt;
    card.outputOffset =
        outputRegistration == null ? 0 : output - outputRegistration.buffer().address() + outputAt;
    card.flags = swaps() ? Card.IN_PLACE : 0;
  }

  /**
   * Shows a peer those of this rank's buffers that are not registered, but were used before.
   *
   * @param inputAt where in the input it may read
   * @param outputAt where in the output it may write
   * @param familiar what was used before
   * @param card gets it, behind what {@link #describe} says
   */
  void show(long inputAt, long outputAt, Familiar familiar, Card card) {
    card.input.hide();
    card.output.hide();
    if (!swaps()) {
      show(inputSegment, input + inputAt, familiar, card.input);
      show(outputSegment, output + outputAt, familiar, card.output);
      card.countShown();
    }
  }

  private static void show(SharedSegment segment, long address, Familiar familiar, Shown shown) {
    if (segment != null && familiar.is(segment.name())) {
      shown.show(segment.name(), address - segment.address());
    }
  }
}
