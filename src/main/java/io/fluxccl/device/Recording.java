// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device;

import io.fluxccl.Experimental;
import io.fluxccl.concurrent.Lifecycle;

/**
 * The shared state of the streams of a recording in progress. Only the creating thread may use it.
 */
@Experimental
public abstract class Recording {
  final Thread thread = Thread.currentThread();

  /** Open as long as the streams record. */
  protected final Lifecycle lifecycle;

  private final RetainedBuffers buffers = new RetainedBuffers();

  /**
   * Begins a recording.
   *
   * @param name of the graph
   */
  protected Recording(String name) {
    this.lifecycle = new Lifecycle("recording " + name);
  }

  /** Returns the buffers that the graph retains. */
  public final RetainedBuffers buffers() {
    return buffers;
  }
}
