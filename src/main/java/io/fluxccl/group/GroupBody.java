// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

/**
 * Code that communicates through a group; see {@link RankGroup#run(GroupBody)}.
 *
 * @param <E> a checked exception that it throws
 */
@FunctionalInterface
public interface GroupBody<E extends Exception> {
  /**
   * Communicates.
   *
   * @param group which the caller closes
   */
  void run(RankGroup group) throws E;
}
