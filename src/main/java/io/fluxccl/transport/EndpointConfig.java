// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import java.time.Duration;

/**
 * The settings of one end of a connection. Immutable; {@code with…} methods return a changed copy.
 *
 * @param transport the transport that moves the bytes
 * @param connectTimeout the longest time that the set-up of the connection may take
 * @param rdma the options of IB0 to IB7; other transports ignore them
 * @param resumeTimeout the longest time that the peer may be out of reach after a link of ETHERNET
 *     was lost; then the connection fails. With zero it fails at once. Other transports ignore it
 * @param checksums whether messages of ETHERNET have checksums of their own. They have if either
 *     end asks for them. Other transports ignore it
 */
public record EndpointConfig(
    Transport transport,
    Duration connectTimeout,
    RdmaOptions rdma,
    Duration resumeTimeout,
    boolean checksums) {
  /**
   * Refuses a missing transport, a connect timeout that is not positive, a negative one to resume.
   */
  public EndpointConfig {
    if (transport == null) {
      throw new InvalidUsage("transport=null; name one of Transport's values");
    }
    if (connectTimeout.isNegative() || connectTimeout.isZero()) {
      throw InvalidUsage.of("connectTimeout=%s; give more than zero", connectTimeout);
    }
    if (resumeTimeout.isNegative()) {
      throw InvalidUsage.of("resumeTimeout=%s; give zero or more", resumeTimeout);
    }
    if (rdma == null) {
      throw new InvalidUsage("rdma=null; use RdmaOptions.DEFAULT");
    }
  }

  /**
   * Checks that this configuration is for a given transport.
   *
   * @param expected the transport that is asked for an endpoint
   * @throws InvalidUsage if this configuration is for another transport
   */
  public void checkTransport(Transport expected) {
    if (transport != expected) {
      throw InvalidUsage.of("endpoint for %s asked of %s", transport, expected);
    }
  }

  /** Returns the defaults for a transport. */
  public static EndpointConfig of(Transport transport) {
    return new EndpointConfig(
        transport, Deadline.DEFAULT_TIMEOUT, RdmaOptions.DEFAULT, Deadline.DEFAULT_TIMEOUT, false);
  }

  /** Returns this configuration with another connect timeout. */
  public EndpointConfig withConnectTimeout(Duration timeout) {
    return new EndpointConfig(transport, timeout, rdma, resumeTimeout, checksums);
  }

  /** Returns this configuration with other RDMA options. */
  public EndpointConfig withRdma(RdmaOptions options) {
    return new EndpointConfig(transport, connectTimeout, options, resumeTimeout, checksums);
  }

  /** Returns this configuration with another time within which a lost link may be replaced. */
  public EndpointConfig withResumeTimeout(Duration timeout) {
    return new EndpointConfig(transport, connectTimeout, rdma, timeout, checksums);
  }

  /** Returns this configuration with or without checksums. */
  public EndpointConfig withChecksums(boolean on) {
    return new EndpointConfig(transport, connectTimeout, rdma, resumeTimeout, on);
  }
}
