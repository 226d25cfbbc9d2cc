// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.tls;

import io.fluxccl.FluxCclException;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.SecureRandom;
import java.security.Signature;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;

/**
 * A new P-256 key and a self-signed certificate. The JDK can't create certificates, so this class
 * writes the ten fields that X.509 (RFC 5280, 4.1) requires. Peers check only the fingerprint of
 * the certificate.
 */
final class SelfSigned {
  private static final int INTEGER = 0x02;
  private static final int BIT_STRING = 0x03;
  private static final int UTF8_STRING = 0x0c;
  private static final int GENERALIZED_TIME = 0x18;
  private static final int SEQUENCE = 0x30;
  private static final int SET = 0x31;
  private static final int VERSION_TAG = 0xa0;

  /** The object identifier of ECDSA with SHA-256. */
  private static final byte[] ECDSA_SHA256 = {
    0x06, 0x08, 0x2a, (byte) 0x86, 0x48, (byte) 0xce, 0x3d, 0x04, 0x03, 0x02
  };

  /** The object identifier of a common name. */
  private static final byte[] COMMON_NAME = {0x06, 0x03, 0x55, 0x04, 0x03};

  final KeyPair keys;
  final X509Certificate certificate;

  SelfSigned() {
    try {
      KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
      generator.initialize(new ECGenParameterSpec("secp256r1"));
      keys = generator.generateKeyPair();
      byte[] content = content(keys.getPublic().getEncoded());
      Signature signature = Signature.getInstance("SHA256withECDSA");
      signature.initSign(keys.getPrivate());
      signature.update(content);
      byte[] signed = der(SEQUENCE, content, der(SEQUENCE, ECDSA_SHA256), bits(signature.sign()));
      certificate =
          (X509Certificate)
              CertificateFactory.getInstance("X.509")
                  .generateCertificate(new ByteArrayInputStream(signed));
    } catch (GeneralSecurityException e) {
      throw FluxCclException.from(e);
    }
  }

  private static byte[] content(byte[] publicKey) {
    byte[] version = der(VERSION_TAG, der(INTEGER, new byte[] {2}));
    byte[] serial = der(INTEGER, new BigInteger(126, new SecureRandom()).toByteArray());
    byte[] name =
        der(SEQUENCE, der(SET, der(SEQUENCE, COMMON_NAME, der(UTF8_STRING, text("fluxccl")))));
    // Ranks' clocks differ, and the certificate is used only while its process runs.
    byte[] validity =
        der(
            SEQUENCE,
            der(GENERALIZED_TIME, text("20000101000000Z")),
            der(GENERALIZED_TIME, text("99991231235959Z")));
    return der(
        SEQUENCE, version, serial, der(SEQUENCE, ECDSA_SHA256), name, validity, name, publicKey);
  }

  private static byte[] text(String characters) {
    return characters.getBytes(StandardCharsets.US_ASCII);
  }

  private static byte[] bits(byte[] bytes) {
    return der(BIT_STRING, new byte[1], bytes);
  }

  /** Writes a tag, the length of the parts, and the parts. */
  private static byte[] der(int tag, byte[]... parts) {
    int length = 0;
    for (byte[] part : parts) {
      length += part.length;
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.write(tag);
    if (length >= 0x80) {
      boolean isLong = length > 0xff;
      out.write(isLong ? 0x82 : 0x81);
      if (isLong) {
        out.write(length >> 8);
      }
    }
    out.write(length);
    for (byte[] part : parts) {
      out.writeBytes(part);
    }
    return out.toByteArray();
  }
}
