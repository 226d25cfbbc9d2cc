// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.IdleBackoff;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.settings.Settings;
import java.time.Duration;
import java.util.function.Supplier;
import org.agrona.concurrent.BusySpinIdleStrategy;
import org.agrona.concurrent.IdleStrategy;

/**
 * The options of a {@link Proxy}. Immutable; several proxies may share one instance.
 *
 * <p>The idle strategy trades CPU time against the latency of the first trigger after a pause. The
 * default ({@link #yielding()}) yields for some tens of microseconds after the last trigger. Then
 * it naps for 20 us at a time, and for up to 2 ms in a long pause: see {@link IdleBackoff}. So a
 * trigger waits at most 3% of the pause before it, plus the time that the kernel takes to wake a
 * thread. An idle proxy costs the CPU time of these wake-ups: 0.8% of a core on a virtual machine
 * that takes 19 us for each, less on other machines. If 2 ms is too long and a core is to spare,
 * use {@link #busySpinning()}; the environment variable {@value #IDLE_VARIABLE} chooses for all
 * proxies that {@link #builderFor} configures, those of the collectives too.
 *
 * @param name the name of the thread and of the agent
 * @param batch the maximum number of triggers that one duty cycle takes
 * @param stopTimeout the longest time that a stop handles triggers and finishes the duty
 * @param threadInit the action that the thread runs first
 * @param idleStrategy supplies each start with an idle strategy of its own
 * @param errorHandler handles errors
 * @param duty the work done between triggers
 */
public record ProxyOptions(
    String name,
    int batch,
    Duration stopTimeout,
    Runnable threadInit,
    Supplier<IdleStrategy> idleStrategy,
    ProxyErrorHandler errorHandler,
    ProxyDuty duty) {
  /** {@code yielding}, {@code spinning} or {@code busySpinning}: how proxies idle. */
  public static final String IDLE_VARIABLE = "FLUXCCL_PROXY_IDLE";

  private static final int ROOMY_CORES = 4;
  private static final long YIELD_MICROS = 60;
  private static final long SHORTEST_NAP_MICROS = 20;
  private static final long LONGEST_NAP_MICROS = 2_000;

  /** Checks that no option is null or out of range. */
  public ProxyOptions {
    require(name != null && !name.isEmpty(), "name", name, "a text that is not empty");
    require(batch >= 1, "batch", batch, "1 or more");
    require(
        stopTimeout != null && !stopTimeout.isNegative(),
        "stopTimeout",
        stopTimeout,
        "zero or more");
    require(threadInit != null, "threadInit", null, "not null");
    require(idleStrategy != null, "idleStrategy", null, "not null");
    require(errorHandler != null, "errorHandler", null, "not null");
    require(duty != null, "duty", null, "not null");
  }

  private static void require(boolean valid, String option, Object given, String allowed) {
    if (!valid) {
      throw InvalidUsage.of("proxy option %s=%s; allowed is %s", option, given, allowed);
    }
  }

  /** Returns the defaults. */
  public static ProxyOptions defaults() {
    return builder().build();
  }

  /** Returns a builder that holds the defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** Returns a builder that holds these options. */
  public Builder toBuilder() {
    return builder()
        .name(name)
        .batch(batch)
        .stopTimeout(stopTimeout)
        .threadInit(threadInit)
        .idleStrategy(idleStrategy)
        .errorHandler(errorHandler)
        .duty(duty);
  }

  /**
   * Returns a new instance of the default idle strategy. It yields without spinning first: if a
   * producer shares the core, each spin would delay its next trigger.
   */
  public static IdleStrategy yielding() {
    return new IdleBackoff(0, YIELD_MICROS, SHORTEST_NAP_MICROS, LONGEST_NAP_MICROS);
  }

  /**
   * Returns a new instance of an idle strategy that spins for a millisecond after the last trigger.
   * It suits proxies of GPUs, whose kernels compute for some hundred microseconds between two
   * triggers, on machines with a core to spare.
   */
  public static IdleStrategy spinning() {
    return new IdleBackoff(1_000, YIELD_MICROS, SHORTEST_NAP_MICROS, LONGEST_NAP_MICROS);
  }

  /**
   * Returns an idle strategy that never sleeps nor yields: a core for the proxy alone, and no
   * trigger waits for it.
   */
  public static IdleStrategy busySpinning() {
    return BusySpinIdleStrategy.INSTANCE;
  }

  /**
   * Returns a builder with the defaults for a device's proxy. The idle strategy is the one that
   * {@value #IDLE_VARIABLE} names; without it, {@link #spinning()} for a GPU if this process has
   * four cores or more, otherwise {@link #yielding()}.
   *
   * @param device the device whose kernels push
   * @return the builder
   * @throws InvalidUsage if the variable names no strategy
   */
  public static Builder builderFor(Device device) {
    return builderFor(device, Settings.ofProcess());
  }

  static Builder builderFor(Device device, Settings settings) {
    boolean coreToSpare = Runtime.getRuntime().availableProcessors() >= ROOMY_CORES;
    return builder()
        .idleStrategy(
            switch (settings.word(IDLE_VARIABLE).orElse("")) {
              case "yielding" -> ProxyOptions::yielding;
              case "spinning" -> ProxyOptions::spinning;
              case "busySpinning" -> ProxyOptions::busySpinning;
              default ->
                  device.kind() == DeviceKind.CUDA && coreToSpare
                      ? ProxyOptions::spinning
                      : ProxyOptions::yielding;
            });
  }

  /** Collects options; starts with the defaults. Not thread-safe. */
  public static final class Builder {
    private String name = "fluxccl-proxy";
    private int batch = 64;
    private Duration stopTimeout = Duration.ofSeconds(5);
    private Runnable threadInit = () -> {};
    private Supplier<IdleStrategy> idleStrategy = ProxyOptions::yielding;
    private ProxyErrorHandler errorHandler = ProxyErrorHandler.LOGGING;
    private ProxyDuty duty = ProxyDuty.NONE;

    private Builder() {}

    /**
     * Sets the name of the thread and the agent; default {@code fluxccl-proxy}.
     *
     * @param name the name, not empty
     * @return this builder
     */
    public Builder name(String name) {
      this.name = name;
      return this;
    }

    /**
     * Sets the maximum number of triggers that one duty cycle takes before it publishes the tail
     * and runs the duty; default 64.
     *
     * @param batch 1 or more
     * @return this builder
     */
    public Builder batch(int batch) {
      this.batch = batch;
      return this;
    }

    /**
     * Sets the longest time that a stop handles queued triggers and finishes the duty; default 5 s.
     *
     * @param stopTimeout zero or more
     * @return this builder
     */
    public Builder stopTimeout(Duration stopTimeout) {
      this.stopTimeout = stopTimeout;
      return this;
    }

    /**
     * Sets the action that the thread runs first, for example to make a device's context current or
     * move to the device's NUMA node; default none. A start fails with the action's exception.
     *
     * @param threadInit the action, run once per start
     * @return this builder
     */
    public Builder threadInit(Runnable threadInit) {
      this.threadInit = threadInit;
      return this;
    }

    /**
     * Sets the idle strategy, which runs when there is no work; default {@link
     * ProxyOptions#yielding()}.
     *
     * @param idleStrategy supplies a new instance for each start, because idle strategies have
     *     state
     * @return this builder
     */
    public Builder idleStrategy(Supplier<IdleStrategy> idleStrategy) {
      this.idleStrategy = idleStrategy;
      return this;
    }

    /**
     * Sets the handler of errors; default {@link ProxyErrorHandler#LOGGING}.
     *
     * @param errorHandler the handler, called from the proxy thread
     * @return this builder
     */
    public Builder errorHandler(ProxyErrorHandler errorHandler) {
      this.errorHandler = errorHandler;
      return this;
    }

    /**
     * Sets the work done between triggers; default none.
     *
     * @param duty the work, called once per duty cycle
     * @return this builder
     */
    public Builder duty(ProxyDuty duty) {
      this.duty = duty;
      return this;
    }

    /**
     * Builds the options.
     *
     * @return the options
     * @throws InvalidUsage if an option is null or out of range
     */
    public ProxyOptions build() {
      return new ProxyOptions(
          name, batch, stopTimeout, threadInit, idleStrategy, errorHandler, duty);
    }
  }
}
