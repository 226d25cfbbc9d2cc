// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Frames.TlsChannels;
import io.fluxccl.settings.Settings;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/**
 * The options of a {@link TcpBootstrap}. Immutable; {@link #builder()} begins with the defaults.
 *
 * @param name of the job, for messages; empty unless set
 * @param timeout how long set-up may take: 30 s unless set
 * @param secret the job's secret, if there is one
 * @param networkInterface the network interface to use, if one is named
 * @param insecure whether to allow addresses that other hosts can reach without a secret
 * @param heartbeatInterval how often the root asks each rank for a heartbeat: 200 ms unless set
 * @param livenessTimeout how long a rank may answer no heartbeat before the job fails; zero, which
 *     is the default, for no limit
 * @param messageLimit the longest message in bytes: 64 MiB unless set
 * @param hostIdentity the host and process that the other ranks take this rank to be on
 * @param settings further options that must be equal on all ranks, by name; empty unless set
 */
public record BootstrapOptions(
    String name,
    Duration timeout,
    Optional<JobSecret> secret,
    Optional<String> networkInterface,
    boolean insecure,
    Duration heartbeatInterval,
    Duration livenessTimeout,
    int messageLimit,
    HostIdentity hostIdentity,
    @Experimental Map<String, String> settings) {
  /** The environment variable for {@link Builder#insecure}: 1 for true, 0 for false. */
  public static final String INSECURE_VARIABLE = "FLUXCCL_INSECURE";

  static final int DEFAULT_MESSAGE_LIMIT = 64 << 20;
  private static final int MAX_MESSAGE_LIMIT = 1 << 30;

  /** Half of the settings that are sent; the bootstrap adds its own. */
  private static final int MAX_SETTINGS = BootstrapFrameCodec.MAX_SETTINGS / 2;

  private static final Duration MIN_INTERVAL = Duration.ofMillis(10);
  private static final Duration MAX_INTERVAL = Duration.ofSeconds(10);

  /** Refuses values out of range. */
  public BootstrapOptions {
    settings = Map.copyOf(settings);
    checkSettings(settings);
    if (timeout.isNegative() || timeout.isZero()) {
      throw InvalidUsage.of("timeout=%s; give more than zero", timeout);
    }
    if (heartbeatInterval.compareTo(MIN_INTERVAL) < 0
        || heartbeatInterval.compareTo(MAX_INTERVAL) > 0) {
      throw InvalidUsage.of("heartbeatInterval=%s; give 10 ms to 10 s", heartbeatInterval);
    }
    if (livenessTimeout.isNegative()) {
      throw InvalidUsage.of("livenessTimeout=%s; give zero or more", livenessTimeout);
    }
    if (messageLimit < 1 || messageLimit > MAX_MESSAGE_LIMIT) {
      throw InvalidUsage.of("messageLimit=%s; give 1 to %s", messageLimit, MAX_MESSAGE_LIMIT);
    }
  }

  private static void checkSettings(Map<String, String> settings) {
    if (settings.size() > MAX_SETTINGS) {
      throw InvalidUsage.of("settings: %s of them; give at most %s", settings.size(), MAX_SETTINGS);
    }
    settings.forEach(
        (name, value) -> {
          checkLength("name", name, BootstrapFrameCodec.MAX_SETTING_NAME_BYTES);
          checkLength("value", value, BootstrapFrameCodec.MAX_SETTING_BYTES);
        });
  }

  private static void checkLength(String part, String text, int most) {
    int length = text.getBytes(StandardCharsets.UTF_8).length;
    if (length > most) {
      throw InvalidUsage.of(
          "settings: the %s %s has %s bytes; give at most %s", part, text, length, most);
    }
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

  /** Collects options; what it makes is immutable. Not thread-safe. */
  public static final class Builder {
    private String name = "";
    private Duration timeout = Deadline.DEFAULT_TIMEOUT;
    private JobSecret secret;
    private String networkInterface;
    private boolean insecure;
    private Duration heartbeatInterval = Duration.ofMillis(200);
    private Duration livenessTimeout = Duration.ZERO;
    private int messageLimit = DEFAULT_MESSAGE_LIMIT;
    private HostIdentity hostIdentity = HostIdentity.current();
    private Map<String, String> settings = Map.of();

    private Builder(Map<String, String> environment) {
      secret = JobSecret.from(environment).orElse(null);
      insecure = Settings.of(environment).flag(INSECURE_VARIABLE);
    }

    /** Sets the job's name, which messages show; empty for none. */
    public Builder name(String value) {
      name = value;
      return this;
    }

    /** Sets how long set-up may take; over zero. */
    public Builder timeout(Duration value) {
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

    /** Sets how long a rank may answer no heartbeat before the job fails; zero for no limit. */
    public Builder livenessTimeout(Duration value) {
      livenessTimeout = value;
      return this;
    }

    /** Sets how often the root asks each rank for a heartbeat; 10 ms to 10 s. */
    public Builder heartbeatInterval(Duration value) {
      heartbeatInterval = value;
      return this;
    }

    /** Sets the longest message in bytes, 1 to 1 GiB; the same on every rank. */
    public Builder messageLimit(int value) {
      messageLimit = value;
      return this;
    }

    /**
     * Sets further options that must be equal on all ranks, by name. A rank that joins with another
     * value fails with {@link InvalidUsage}, which names the option and both values.
     */
    @Experimental
    public Builder settings(Map<String, String> value) {
      settings = Map.copyOf(value);
      return this;
    }

    Builder hostIdentity(HostIdentity value) {
      hostIdentity = value;
      return this;
    }

    /**
     * Returns the options.
     *
     * @throws InvalidUsage if a value is out of range
     */
    public BootstrapOptions build() {
      TlsChannels.check();
      return new BootstrapOptions(
          name,
          timeout,
          Optional.ofNullable(secret),
          Optional.ofNullable(networkInterface),
          insecure,
          heartbeatInterval,
          livenessTimeout,
          messageLimit,
          hostIdentity,
          settings);
    }
  }
}
