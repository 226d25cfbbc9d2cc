package io.fluxccl.collective;

import java.util.List;
import org.reactivestreams.Subscription;
import reactor.core.CoreSubscriber;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Operators;

/** Steps of a lane as a cold Mono: each subscription is a {@link Run} of its own. */
final class RunMono extends Mono<Void> {
  private final Lane lane;
  private final List<Step> steps;
  private final Object what;

  private RunMono(Lane lane, List<Step> steps, Object what) {
    this.lane = lane;
    this.steps = steps;
    this.what = what;
  }

  /**
   * The Mono.
   *
   * @param lane that does them
   * @param steps in order
   * @param what they are; asked for a text when there is something to say
   */
  static Mono<Void> of(Lane lane, List<Step> steps, Object what) {
    return onAssembly(new RunMono(lane, steps, what));
  }

  @Override
  public void subscribe(CoreSubscriber<? super Void> actual) {
    Subscribed run = new Subscribed(this, actual);
    // First, so that the subscriber knows whom to cancel before there is anything to cancel.
    actual.onSubscribe(run);
    lane.submit(run);
  }

  private static final class Subscribed extends Run implements Subscription {
    private final CoreSubscriber<? super Void> actual;
    private final Object what;

    Subscribed(RunMono source, CoreSubscriber<? super Void> actual) {
      super(source.lane, source.steps);
      this.actual = actual;
      this.what = source.what;
    }

    @Override
    public void request(long n) {
      Operators.validate(n); // there is no value to wait for
    }

    @Override
    void completed() {
      actual.onComplete();
    }

    @Override
    void failed(Throwable reason) {
      actual.onError(reason);
    }

    @Override
    String description() {
      return what.toString();
    }
  }
}
