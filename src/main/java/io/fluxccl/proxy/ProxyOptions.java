package io.fluxccl.proxy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceKind;
import java.time.Duration;
import java.util.Objects;
import java.util.function.Supplier;
import org.agrona.concurrent.IdleStrategy;

/**
 * How a {@link Proxy} runs. Immutable; may be shared by several.
 *
 * <p>The idle strategy trades CPU time for the time that the first trigger after a pause waits. The
 * default ({@link #fading()}) polls and yields for some tens of microseconds after the last
 * trigger, sleeps 20 us at a time for some tens of milliseconds, then 2 ms at a time. So triggers
 * that follow each other within milliseconds are taken at once or nearly so; the first one after a
 * longer pause waits up to 2 ms and what the kernel adds. An idle proxy then costs what the kernel
 * takes to wake a thread: 0.8% of a core on a virtual machine that takes 19 us for it, less on
 * others. Where 2 ms is too long and a core is to spare, give {@code BusySpinIdleStrategy::new}.
 */
public final class ProxyOptions {
  private static final int ROOMY_CORES = 4;

  private final String name;
  private final int batch;
  private final Duration stopTimeout;
  private final Runnable threadInit;
  private final Supplier<IdleStrategy> idleStrategy;
  private final ProxyErrorHandler errorHandler;
  private final ProxyDuty duty;

  private ProxyOptions(Builder builder) {
    this.name = builder.name;
    this.batch = builder.batch;
    this.stopTimeout = builder.stopTimeout;
    this.threadInit = builder.threadInit;
    this.idleStrategy = builder.idleStrategy;
    this.errorHandler = builder.errorHandler;
    this.duty = builder.duty;
  }

  /** All defaults. */
  public static ProxyOptions defaults() {
    return builder().build();
  }

  /** A builder that holds the defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** A builder that holds these options. */
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

  /** A new instance of the default idle strategy. */
  public static IdleStrategy fading() {
    return new FadingIdleStrategy(FadingIdleStrategy.FEW_POLLS);
  }

  /**
   * A new instance of an idle strategy that polls for about a millisecond after the last trigger
   * and goes on like {@link #fading()} then. For proxies of GPUs: their kernels compute for some
   * hundred microseconds between one trigger and the next, and a core is to spare.
   */
  public static IdleStrategy attentive() {
    return new FadingIdleStrategy(FadingIdleStrategy.MANY_POLLS);
  }

  /**
   * Options with defaults for a device's proxy: {@link #attentive()} for a GPU's where this process
   * has four cores or more, otherwise {@link #fading()}.
   *
   * @param device whose kernels push
   * @return the options so far
   */
  public static Builder builderFor(Device device) {
    boolean coreToSpare = Runtime.getRuntime().availableProcessors() >= ROOMY_CORES;
    return device.kind() == DeviceKind.CUDA && coreToSpare
        ? builder().idleStrategy(ProxyOptions::attentive)
        : builder();
  }

  /** The name of the thread and of the agent. */
  public String name() {
    return name;
  }

  /** The most triggers that one duty cycle takes. */
  public int batch() {
    return batch;
  }

  /** How long a stop goes on handling what was queued, and with the duty. */
  public Duration stopTimeout() {
    return stopTimeout;
  }

  /** What the thread runs first. */
  public Runnable threadInit() {
    return threadInit;
  }

  /** Gives each start its own idle strategy. */
  public Supplier<IdleStrategy> idleStrategy() {
    return idleStrategy;
  }

  /** Who learns of errors. */
  public ProxyErrorHandler errorHandler() {
    return errorHandler;
  }

  /** What is done between triggers. */
  public ProxyDuty duty() {
    return duty;
  }

  /** Collects options; starts with the defaults. Not thread-safe. */
  public static final class Builder {
    private String name = "fluxccl-proxy";
    private int batch = 64;
    private Duration stopTimeout = Duration.ofSeconds(5);
    private Runnable threadInit = () -> {};
    private Supplier<IdleStrategy> idleStrategy = ProxyOptions::fading;
    private ProxyErrorHandler errorHandler = ProxyErrorHandler.LOGGING;
    private ProxyDuty duty = ProxyDuty.NONE;

    private Builder() {}

    /**
     * Names the thread and the agent; default {@code fluxccl-proxy}.
     *
     * @param name not empty
     * @return this
     */
    public Builder name(String name) {
      this.name = name;
      return this;
    }

    /**
     * Limits how many triggers one duty cycle takes before the tail is published and the duty gets
     * its turn; default 64.
     *
     * @param batch 1 or more
     * @return this
     */
    public Builder batch(int batch) {
      this.batch = batch;
      return this;
    }

    /**
     * Limits how long a stop goes on handling what was queued, and with the duty; default 5 s.
     *
     * @param stopTimeout zero or more
     * @return this
     */
    public Builder stopTimeout(Duration stopTimeout) {
      this.stopTimeout = stopTimeout;
      return this;
    }

    /**
     * Sets what the thread runs first, such as making a device's context current or moving to the
     * device's NUMA node; default nothing. A start fails with what it throws.
     *
     * @param threadInit run once a start
     * @return this
     */
    public Builder threadInit(Runnable threadInit) {
      this.threadInit = threadInit;
      return this;
    }

    /**
     * Sets how the thread passes the time when there is nothing to do; default {@link
     * ProxyOptions#fading()}.
     *
     * @param idleStrategy gives a new one for each start: they have state
     * @return this
     */
    public Builder idleStrategy(Supplier<IdleStrategy> idleStrategy) {
      this.idleStrategy = idleStrategy;
      return this;
    }

    /**
     * Sets who learns of errors; default {@link ProxyErrorHandler#LOGGING}.
     *
     * @param errorHandler called from the proxy thread
     * @return this
     */
    public Builder errorHandler(ProxyErrorHandler errorHandler) {
      this.errorHandler = errorHandler;
      return this;
    }

    /**
     * Sets what is done between triggers; default nothing.
     *
     * @param duty called once a duty cycle
     * @return this
     */
    public Builder duty(ProxyDuty duty) {
      this.duty = duty;
      return this;
    }

    /**
     * Freezes the options.
     *
     * @return the options
     * @throws InvalidUsage if one is null or out of range
     */
    public ProxyOptions build() {
      require(name != null && !name.isEmpty(), "name", name, "a text that is not empty");
      require(batch >= 1, "batch", batch, "1 or more");
      require(
          stopTimeout != null && !stopTimeout.isNegative(),
          "stopTimeout",
          stopTimeout,
          "zero or more");
      requireGiven("threadInit", threadInit);
      requireGiven("idleStrategy", idleStrategy);
      requireGiven("errorHandler", errorHandler);
      requireGiven("duty", duty);
      return new ProxyOptions(this);
    }

    private static void requireGiven(String option, Object value) {
      require(value != null, option, null, "not null");
    }

    private static void require(boolean valid, String option, Object given, String allowed) {
      if (!valid) {
        throw new InvalidUsage(
            "proxy option " + option + "=" + Objects.toString(given) + "; allowed is " + allowed);
      }
    }
  }
}
