// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import io.fluxccl.FluxCclException;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.Expect;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/** A child that is added while two threads close is closed exactly once, in either order. */
@JCStressTest
@Outcome(id = "1, 1", expect = Expect.ACCEPTABLE, desc = "closed once, by one closing thread")
@Outcome(expect = Expect.FORBIDDEN, desc = "a child was left open or closed twice")
@State
public class LifecycleStress {
  private final Lifecycle lifecycle = new Lifecycle("test");
  private volatile int childClosed;
  private volatile int closers;

  @Actor
  public void add() {
    try {
      lifecycle.own(this::closeChild);
    } catch (FluxCclException closedAlready) {
      // The child was closed at once.
    }
  }

  @Actor
  public void close1() {
    close();
  }

  @Actor
  public void close2() {
    close();
  }

  private void close() {
    if (lifecycle.beginClose()) {
      count();
      lifecycle.closeChildren();
    }
  }

  private synchronized void count() {
    closers++;
  }

  private synchronized void closeChild() {
    childClosed++;
  }

  @Arbiter
  public void check(II_Result result) {
    result.r1 = childClosed;
    result.r2 = closers;
  }
}
