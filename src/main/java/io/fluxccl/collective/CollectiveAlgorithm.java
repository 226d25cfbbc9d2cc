package io.fluxccl.collective;

import io.fluxccl.device.DeviceStream;

/**
 * One way to do one or several collectives, bound to a lane. Whatever it decides must come out the
 * same on every rank: from the call's signature, its total bytes, the topology without the rank,
 * and whether its buffers are registered; never from addresses or this rank's number.
 */
public interface CollectiveAlgorithm {
  /** Its name among all algorithms, for example {@code two-shots-ll128}. */
  String name();

  /** Whether it can do this. */
  boolean supports(BoundCall call);

  /**
   * How long it would take, in microseconds; the selector takes the least. A model of two or three
   * terms, fitted to measurements, is enough.
   */
  double estimate(BoundCall call);

  /**
   * Enqueues the call; returns at once, allocates little, waits for nothing. Called by one thread
   * at a time, for the calls of a lane in the same order on all ranks; also while a stream is being
   * recorded, so everything that changes from run to run (epochs, slots) must live on the device.
   *
   * @param stream of the lane, or a recording
   * @param call that it supports; never with a count of 0, nor with one rank only
   */
  void enqueue(DeviceStream stream, BoundCall call);
}
