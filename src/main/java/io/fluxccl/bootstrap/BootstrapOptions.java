package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/**
 * The options of a {@link TcpBootstrap}. Immutable; {@link #builder()} begins with the defaults.
 */
public final class BootstrapOptions {
  /** The environment variable that stands for {@link Builder#insecure}: 1, or 0 for false. */
  public static final String INSECURE_VARIABLE = "FLUXCCL_INSECURE";

  static final int DEFAULT_MESSAGE_LIMIT = 64 << 20;
  private static final int MAX_MESSAGE_LIMIT = 1 << 30;

  private final Duration timeout;
  private final JobSecret secret;
  private final String networkInterface;
  private final boolean insecure;
  private final Duration heartbeatInterval;
  private final int messageLimit;
  private final HostIdentity hostIdentity;

  private BootstrapOptions(Builder builder) {
    timeout = builder.timeout;
    secret = builder.secret;
    networkInterface = builder.networkInterface;
    insecure = builder.insecure;
    heartbeatInterval = builder.heartbeatInterval;
    messageLimit = builder.messageLimit;
    hostIdentity = builder.hostIdentity;
  }

  /**
   * Returns the defaults, with the secret of the environment.
   *
   * @throws InvalidUsage if a variable can't be read
   */
  public static BootstrapOptions defaults() {
    return builder().build();
  }

  /**
   * Returns a builder with the defaults and the secret of the environment.
   *
   * @throws InvalidUsage if a variable can't be read
   */
  public static Builder builder() {
    return new Builder(System.getenv());
  }

  static Builder builder(Map<String, String> environment) {
    return new Builder(environment);
  }

  /** Returns how long set-up may take: 30 s unless set. */
  public Duration timeout() {
    return timeout;
  }

  /** Returns the job's secret, if there is one. */
  public Optional<JobSecret> secret() {
    return Optional.ofNullable(secret);
  }

  /** Returns the network interface to use, if one is named. */
  public Optional<String> networkInterface() {
    return Optional.ofNullable(networkInterface);
  }

  /** Returns whether to allow addresses that other hosts can reach without a secret. */
  public boolean insecure() {
    return insecure;
  }

  /** Returns how often the root asks each rank for a heartbeat: 200 ms unless set. */
  public Duration heartbeatInterval() {
    return heartbeatInterval;
  }

  /** Returns the longest message in bytes: 64 MiB unless set. */
  public int messageLimit() {
    return messageLimit;
  }

  HostIdentity hostIdentity() {
    return hostIdentity;
  }

  @Override
  public String toString() {
    return String.format(
        "BootstrapOptions(timeout=%s, secret=%s, interface=%s, insecure=%s,"
            + " heartbeatInterval=%s, messageLimit=%s)",
        timeout,
        secret == null ? "none" : "given",
        networkInterface,
        insecure,
        heartbeatInterval,
        messageLimit);
  }

  /** Collects options; what it makes is immutable. Not thread-safe. */
  public static final class Builder {
    private Duration timeout = Deadline.DEFAULT_TIMEOUT;
    private JobSecret secret;
    private String networkInterface;
    private boolean insecure;
    private Duration heartbeatInterval = Duration.ofMillis(200);
    private int messageLimit = DEFAULT_MESSAGE_LIMIT;
    private HostIdentity hostIdentity = HostIdentity.current();

    private Builder(Map<String, String> environment) {
      secret = JobSecret.from(environment).orElse(null);
      insecure = insecureFrom(environment);
    }

    private static boolean insecureFrom(Map<String, String> environment) {
      String text = environment.getOrDefault(INSECURE_VARIABLE, "");
      return switch (text.strip()) {
        case "", "0" -> false;
        case "1" -> true;
        default -> throw InvalidUsage.of("%s=%s is none of 0, 1", INSECURE_VARIABLE, text);
      };
    }

    /** Sets how long set-up may take; over zero. */
    public Builder timeout(Duration value) {
      if (value.isNegative() || value.isZero()) {
        throw new InvalidUsage("timeout=" + value + "; give more than zero");
      }
      timeout = value;
      return this;
    }

    /** Sets the job's secret; null for none. */
    public Builder secret(JobSecret value) {
      secret = value;
      return this;
    }

    /** Sets the network interface whose address to use, for example eth0; null for any. */
    public Builder networkInterface(String value) {
      networkInterface = value;
      return this;
    }

    /**
     * Allows addresses that other hosts can reach without a secret. Any process that reaches the
     * port can then join the job or fail it: for closed networks only.
     */
    public Builder insecure(boolean value) {
      insecure = value;
      return this;
    }

    /** Sets how often the root asks each rank for a heartbeat; 10 ms to 10 s. */
    public Builder heartbeatInterval(Duration value) {
      if (value.compareTo(Duration.ofMillis(10)) < 0
          || value.compareTo(Duration.ofSeconds(10)) > 0) {
        throw new InvalidUsage("heartbeatInterval=" + value + "; give 10 ms to 10 s");
      }
      heartbeatInterval = value;
      return this;
    }

    /** Sets the longest message in bytes, 1 to 1 GiB; the same on every rank. */
    public Builder messageLimit(int value) {
      if (value < 1 || value > MAX_MESSAGE_LIMIT) {
        throw new InvalidUsage("messageLimit=" + value + "; give 1 to " + MAX_MESSAGE_LIMIT);
      }
      messageLimit = value;
      return this;
    }

    Builder hostIdentity(HostIdentity value) {
      hostIdentity = value;
      return this;
    }

    /** Returns the options. */
    public BootstrapOptions build() {
      return new BootstrapOptions(this);
    }
  }
}
