// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.wire.WireWriter;
import io.netty.buffer.ByteBuf;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.Optional;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * The key of the handshake. Each side sends a fresh nonce. First the connector and then the
 * acceptor proves that it knows the key, by HMAC-SHA-256 over both nonces and the exchanged fields.
 * Each side uses a different label, so neither proof can be replayed as the other. Immutable.
 *
 * @param guarded whether it was derived from a secret
 * @param known whether any process can derive it: there is no secret, and it is no key of links
 *     between admitted ranks
 */
record SessionKey(byte[] key, boolean guarded, boolean known) {
  private static final String ALGORITHM = "HmacSHA256";
  private static final SecureRandom RANDOM = new SecureRandom();

  private static final String NO_SECRET = "FluxCCL without a secret|";

  static SessionKey of(byte[] secret) {
    return new SessionKey(secret, true, false);
  }

  static SessionKey of(JobSecret secret) {
    return of(secret.bytes());
  }

  /** Creates the key of a job: of its secret, if it has one. */
  static SessionKey of(Optional<JobSecret> secret, String jobIdentity) {
    return secret.map(SessionKey::of).orElseGet(() -> withoutSecret(jobIdentity));
  }

  /**
   * Creates a key without a secret. It excludes processes that speak another protocol, and jobs
   * that use the same port by accident.
   *
   * @param jobIdentity what the job's ranks have in common; may be empty
   */
  static SessionKey withoutSecret(String jobIdentity) {
    return new SessionKey((NO_SECRET + jobIdentity).getBytes(StandardCharsets.UTF_8), false, true);
  }

  /**
   * Returns the key of connections of a kind. The holder of a dump key cannot derive any other key
   * from it.
   */
  SessionKey of(LinkKind kind) {
    return kind == LinkKind.INQUIRY
        ? new SessionKey(mac("inquiries", BootstrapFrame.NO_BYTES), guarded, known)
        : this;
  }

  static byte[] nonce(int length) {
    byte[] bytes = new byte[length];
    RANDOM.nextBytes(bytes);
    return bytes;
  }

  /**
   * Returns the proof that a connector knows the secret.
   *
   * @param certificate the fingerprint of the acceptor's; empty without TLS
   */
  byte[] connectorProof(Proof request, byte[] acceptorNonce, byte[] certificate) {
    return mac("connector", transcript(request, acceptorNonce, certificate));
  }

  /**
   * Returns the proof that an acceptor knows the secret and has made a decision.
   *
   * @param verdict the decision; its own proof does not matter
   */
  byte[] acceptorProof(Proof request, byte[] acceptorNonce, byte[] certificate, Verdict verdict) {
    byte[] transcript = transcript(request, acceptorNonce, certificate);
    Verdict unproven = verdict.withMac(BootstrapFrame.NO_BYTES);
    return mac(
        "acceptor",
        BootstrapFrameCodec.write(new WireWriter(), unproven).raw(transcript).toBytes());
  }

  /**
   * Returns the authentication of the frames that the connector, or else the acceptor, of one
   * connection sends. Null over TLS, which authenticates them itself, and without a secret, because
   * any process could then forge it.
   *
   * @param certificate as for the proofs
   */
  FrameMac frames(boolean ofConnector, Proof request, byte[] acceptorNonce, byte[] certificate) {
    if (!guarded || certificate.length > 0) {
      return null;
    }
    String label = ofConnector ? "frames of connector" : "frames of acceptor";
    return new FrameMac(mac(label, transcript(request, acceptorNonce, certificate)));
  }

  static boolean equal(byte[] one, byte[] other) {
    return MessageDigest.isEqual(one, other);
  }

  private static byte[] transcript(Proof request, byte[] acceptorNonce, byte[] certificate) {
    Proof unproven = request.withMac(BootstrapFrame.NO_BYTES);
    return BootstrapFrameCodec.write(new WireWriter(), unproven)
        .raw(acceptorNonce)
        .raw(certificate)
        .toBytes();
  }

  private byte[] mac(String label, byte[] content) {
    Mac mac = macOf(key);
    mac.update(label.getBytes(StandardCharsets.US_ASCII));
    mac.update((byte) 0);
    mac.update(content);
    return mac.doFinal();
  }

  static Mac macOf(byte[] key) {
    try {
      Mac mac = Mac.getInstance(ALGORITHM);
      mac.init(new SecretKeySpec(key, ALGORITHM));
      return mac;
    } catch (GeneralSecurityException e) {
      throw FluxCclException.from(e);
    }
  }

  /**
   * Authenticates the frames of one direction of a connection: each carries an HMAC-SHA-256 over
   * its number and its bytes, cut to 16 bytes. So no frame can be forged, changed, left out,
   * repeated or sent back. Only on the event loop.
   */
  static final class FrameMac {
    static final int BYTES = 16;

    private final Mac mac;
    private final ByteBuffer number = ByteBuffer.allocate(Long.BYTES);
    private long frames;

    /**
     * @param key of one direction of one connection
     */
    FrameMac(byte[] key) {
      mac = SessionKey.macOf(key);
    }

    /** Returns the code of the next frame, whose bytes lie between the buffer's indices. */
    byte[] next(ByteBuf frame) {
      mac.update(number.putLong(0, frames++).rewind());
      for (ByteBuffer part : frame.nioBuffers()) {
        mac.update(part);
      }
      return Arrays.copyOf(mac.doFinal(), BYTES);
    }
  }
}
