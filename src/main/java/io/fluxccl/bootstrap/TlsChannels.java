// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import io.fluxccl.OptionalLibrary;
import io.fluxccl.tls.Tls;
import io.netty.channel.Channel;
import io.netty.handler.ssl.SslHandler;
import java.util.Optional;
import javax.net.ssl.SSLException;

/**
 * TLS of the bootstrap's sockets. Both sides' proofs of the job's secret contain the fingerprint of
 * the accepting side's certificate, each as that side knows it: somebody between them who presents
 * a certificate of its own makes the proofs differ.
 */
final class TlsChannels {
  private static final byte[] NONE = {};

  private TlsChannels() {}

  /**
   * Refuses settings of TLS that can't work.
   *
   * @throws InvalidUsage naming the variable, or the library that is missing
   */
  static void check() {
    Optional<String> missing = OptionalLibrary.NETTY_HANDLER.missingBecause();
    if (Tls.fromEnvironment().isPresent() && missing.isPresent()) {
      throw new InvalidUsage(Tls.VARIABLE + "=1: " + missing.get());
    }
  }

  /** Puts TLS below all handlers of a channel, if this process uses it. On the event loop. */
  static void protect(Channel channel, boolean connects) {
    Tls.fromEnvironment()
        .ifPresent(
            tls -> {
              SslHandler handler = new SslHandler(connects ? tls.connecting() : tls.accepting());
              handler.setHandshakeTimeoutMillis(Handshake.LIMIT_MILLIS);
              channel.pipeline().addFirst(handler);
            });
  }

  /** Returns the fingerprint of the accepting side's certificate; nothing without TLS. */
  static byte[] fingerprint(Channel channel, boolean connects) throws SSLException {
    Optional<Tls> tls = Tls.fromEnvironment();
    if (tls.isEmpty() || channel.pipeline().get(SslHandler.class) == null) {
      return NONE;
    }
    return connects
        ? Tls.peerFingerprint(channel.pipeline().get(SslHandler.class).engine())
        : tls.get().fingerprint();
  }
}
