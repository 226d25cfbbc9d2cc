// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.tls;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.settings.Settings;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigInteger;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.InvalidKeyException;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.PrivateKey;
import java.security.SecureRandom;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * The certificate of this process, and the engines of its connections: TLS 1.3 and nothing older. A
 * connecting rank verifies the other side's certificate by its fingerprint, which it received with
 * the address. The accepting side authenticates the connecting one by a token, or by a proof of the
 * job's secret. A self-signed certificate of each process is therefore sufficient. With the user's
 * certificates, both sides present one and verify the other's against the user's authorities.
 * Immutable and thread-safe.
 */
public final class Tls {
  /** The environment variable that switches TLS on: 1, or 0 or unset for off. */
  public static final String VARIABLE = "FLUXCCL_TLS";

  /** The environment variable that names a PEM file with this rank's chain of certificates. */
  public static final String CERTIFICATE_VARIABLE = "FLUXCCL_TLS_CERTIFICATE";

  /** The environment variable that names a PEM file with the certificate's key, in PKCS #8. */
  public static final String KEY_VARIABLE = "FLUXCCL_TLS_KEY";

  /** The environment variable that names a PEM file with the authorities that sign for ranks. */
  public static final String AUTHORITIES_VARIABLE = "FLUXCCL_TLS_AUTHORITIES";

  /** The system property that overrides {@value #VARIABLE}. */
  public static final String PROPERTY = "fluxccl.tls";

  /** The length in bytes of a fingerprint: SHA-256 of the certificate. */
  public static final int FINGERPRINT_LENGTH = 32;

  private static final String[] PROTOCOLS = {"TLSv1.3"};
  private static final String[] CIPHERS = {
    "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"
  };
  private static final char[] NO_PASSWORD = {};

  /** Contexts made from files, by the files' names. */
  private static final Map<List<Path>, Tls> OF_FILES = new ConcurrentHashMap<>();

  private final SSLContext context;
  private final byte[] fingerprint;
  private final boolean hasAuthorities;

  private Tls(PrivateKey key, Certificate[] chain, TrustManager[] trust) {
    try {
      checkPair(key, chain[0]);
      KeyStore store = KeyStore.getInstance("PKCS12");
      store.load(null, NO_PASSWORD);
      store.setKeyEntry("rank", key, NO_PASSWORD, chain);
      KeyManagerFactory keys =
          KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      keys.init(store, NO_PASSWORD);
      context = SSLContext.getInstance("TLS");
      hasAuthorities = trust != null;
      context.init(
          keys.getKeyManagers(),
          hasAuthorities ? trust : new TrustManager[] {new AnyCertificate()},
          null);
      fingerprint = fingerprint(chain[0]);
    } catch (GeneralSecurityException | IOException e) {
      throw new InvalidUsage("TLS can't use the certificate and its key: " + e.getMessage(), e);
    }
  }

  /**
   * Refuses a key that does not match the certificate; a handshake would fail without a clear
   * reason.
   */
  private static void checkPair(PrivateKey key, Certificate certificate)
      throws GeneralSecurityException {
    String kind = key.getAlgorithm();
    Signature signature =
        Signature.getInstance(
            kind.equals("EC") ? "SHA256withECDSA" : kind.equals("RSA") ? "SHA256withRSA" : kind);
    signature.initSign(key);
    byte[] signed = signature.sign();
    signature.initVerify(certificate);
    if (!signature.verify(signed)) {
      throw new InvalidKeyException("the key is not the certificate's");
    }
  }

  /** Returns TLS with a self-signed certificate of this process, the same for all callers. */
  public static Tls selfSigned() {
    return OfProcess.SELF_SIGNED;
  }

  private static final class OfProcess {
    static final Tls SELF_SIGNED = make();

    private static Tls make() {
      SelfSigned made = new SelfSigned();
      return new Tls(made.keys.getPrivate(), new Certificate[] {made.certificate}, null);
    }
  }

  /**
   * Returns TLS with the user's certificates.
   *
   * @param certificates a PEM file with this rank's certificate and the intermediate certificates
   * @param key a PEM file with the certificate's key: PKCS #8, not encrypted
   * @param authorities a PEM file with the certificates of the authorities that sign for ranks
   * @return the settings
   * @throws InvalidUsage if a file can't be read, or key and certificate can't be used
   */
  public static Tls of(Path certificates, Path key, Path authorities) {
    return new Tls(
        readKey(key),
        readCertificates(certificates).toArray(new Certificate[0]),
        trusting(readCertificates(authorities)));
  }

  /**
   * Returns the settings of this process's environment.
   *
   * @return empty if TLS is off
   * @throws InvalidUsage if a variable's value is wrong; the message names the variable
   */
  public static Optional<Tls> fromEnvironment() {
    return from(Settings.ofProcess());
  }

  static Optional<Tls> from(Settings settings) {
    List<Path> files =
        Stream.of(CERTIFICATE_VARIABLE, KEY_VARIABLE, AUTHORITIES_VARIABLE)
            .flatMap(name -> settings.file(name).stream())
            .toList();
    if (!settings.flag(VARIABLE)) {
      if (!files.isEmpty()) {
        throw InvalidUsage.of("%s is set, but not %s=1", CERTIFICATE_VARIABLE, VARIABLE);
      }
      return Optional.empty();
    }
    if (files.isEmpty()) {
      return Optional.of(selfSigned());
    }
    if (files.size() < 3) {
      throw InvalidUsage.of(
          "give all of %s, %s and %s, or none for certificates that the ranks make themselves",
          CERTIFICATE_VARIABLE, KEY_VARIABLE, AUTHORITIES_VARIABLE);
    }
    return Optional.of(
        OF_FILES.computeIfAbsent(files, each -> of(each.get(0), each.get(1), each.get(2))));
  }

  /** Returns the fingerprint of this process's certificate. */
  public byte[] fingerprint() {
    return fingerprint.clone();
  }

  /** Returns a new engine for the side that connects. */
  public SSLEngine connecting() {
    return engine(true);
  }

  /** Returns a new engine for the side that accepts. */
  public SSLEngine accepting() {
    SSLEngine engine = engine(false);
    engine.setNeedClientAuth(hasAuthorities);
    return engine;
  }

  private SSLEngine engine(boolean client) {
    SSLEngine engine = context.createSSLEngine();
    engine.setUseClientMode(client);
    engine.setEnabledProtocols(PROTOCOLS);
    engine.setEnabledCipherSuites(CIPHERS);
    return engine;
  }

  /**
   * Returns the fingerprint of the other side's certificate.
   *
   * @param engine of the connecting side, after the handshake
   * @return {@value #FINGERPRINT_LENGTH} bytes
   * @throws SSLException if the other side has presented none
   */
  public static byte[] peerFingerprint(SSLEngine engine) throws SSLException {
    try {
      return fingerprint(engine.getSession().getPeerCertificates()[0]);
    } catch (GeneralSecurityException e) {
      throw new SSLException(e);
    }
  }

  private static byte[] fingerprint(Certificate certificate) throws GeneralSecurityException {
    return MessageDigest.getInstance("SHA-256").digest(certificate.getEncoded());
  }

  private static TrustManager[] trusting(Collection<? extends Certificate> authorities) {
    try {
      KeyStore store = KeyStore.getInstance("PKCS12");
      store.load(null, NO_PASSWORD);
      for (Certificate each : authorities) {
        store.setCertificateEntry("authority " + store.size(), each);
      }
      TrustManagerFactory trust =
          TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(store);
      return trust.getTrustManagers();
    } catch (GeneralSecurityException | IOException e) {
      throw FluxCclException.from(e);
    }
  }

  private static Collection<? extends Certificate> readCertificates(Path file) {
    Collection<? extends Certificate> found;
    try {
      found =
          CertificateFactory.getInstance("X.509")
              .generateCertificates(new ByteArrayInputStream(Files.readAllBytes(file)));
    } catch (IOException | GeneralSecurityException e) {
      throw new InvalidUsage(file + " can't be read as certificates in PEM: " + e, e);
    }
    if (found.isEmpty()) {
      throw new InvalidUsage(file + " has no certificate");
    }
    return found;
  }

  private static PrivateKey readKey(Path file) {
    String begin = "-----BEGIN PRIVATE KEY-----";
    try {
      String pem = Files.readString(file, StandardCharsets.US_ASCII);
      int from = pem.indexOf(begin);
      int to = pem.indexOf("-----END", from + 1);
      if (from < 0 || to < 0) {
        throw new InvalidUsage(
            file + " has no \"" + begin + "\"; run: openssl pkcs8 -topk8 -nodes -in " + file);
      }
      byte[] bytes = Base64.getMimeDecoder().decode(pem.substring(from + begin.length(), to));
      return key(new PKCS8EncodedKeySpec(bytes), file);
    } catch (IOException | IllegalArgumentException e) {
      throw new InvalidUsage(file + " can't be read as a key in PEM: " + e, e);
    }
  }

  private static PrivateKey key(PKCS8EncodedKeySpec encoded, Path file) {
    for (String algorithm : new String[] {"EC", "RSA", "EdDSA"}) {
      try {
        return KeyFactory.getInstance(algorithm).generatePrivate(encoded);
      } catch (InvalidKeySpecException e) {
        continue; // a key of another kind
      } catch (GeneralSecurityException e) {
        throw FluxCclException.from(e);
      }
    }
    throw new InvalidUsage(file + " has a key that is neither of EC, RSA nor EdDSA");
  }

  /** Accepts every certificate: the caller compares its fingerprint after the handshake. */
  static final class AnyCertificate extends X509ExtendedTrustManager {
    private static final X509Certificate[] NONE = {};

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type) {}

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type) {}

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) {}

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) {}

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return NONE;
    }
  }

  /**
   * A new P-256 key and a self-signed certificate. The JDK can't create certificates, so this class
   * writes the ten fields that X.509 (RFC 5280, 4.1) requires. Peers check only the fingerprint of
   * the certificate.
   */
  static final class SelfSigned {
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
}
