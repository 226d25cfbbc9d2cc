// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.util.List;

/**
 * The state of the engine at one moment.
 *
 * @param ready whether requests are served
 * @param generation how often the ranks have met, from 1; 0 before the first time
 * @param ranks the state of each rank
 * @param running requests in the batch
 * @param waiting requests in the queue
 * @param maxWaiting the queue's bound
 * @param pagesUsed pages of the cache in use, on each rank
 * @param pages pages of the cache, on each rank
 * @param steps steps so far
 * @param tokens tokens generated so far
 * @param stepMillis the time of a step, averaged over the last ones
 * @param communicationShare the part of a step's time that its all-reduces take, 0 to 1; measured
 *     when the ranks meet
 * @param restarts generations that have failed since rank 0 began
 * @param lastFailure why the last of them failed; null if none has
 */
public record EngineStatus(
    boolean ready,
    long generation,
    List<Rank> ranks,
    int running,
    int waiting,
    int maxWaiting,
    int pagesUsed,
    int pages,
    long steps,
    long tokens,
    double stepMillis,
    double communicationShare,
    long restarts,
    String lastFailure) {

  /**
   * The state of a rank.
   *
   * @param rank its number
   * @param device the kind of its device: host or cuda
   * @param state {@code serving}, {@code silent} if it answers no heartbeat, {@code missing} or
   *     {@code joining}
   */
  public record Rank(int rank, String device, String state) {}
}
