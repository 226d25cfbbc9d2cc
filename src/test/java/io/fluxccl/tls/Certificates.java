// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.tls;

import io.fluxccl.testing.TestJvms;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import javax.net.ssl.SSLEngine;

/** An authority and the certificates that it signs, in PEM files; made by the JDK's keytool. */
public final class Certificates {
  private static final String PASSWORD = "changeit";

  private final Path folder;

  public Certificates(Path folder) throws Exception {
    this.folder = folder;
    keytool("-genkeypair", "ca", "-keyalg", "EC", "-dname", "CN=authority", "-ext", "bc:c");
    writePem(folder.resolve("ca.pem"), "CERTIFICATE", load().getCertificate("ca").getEncoded());
  }

  /** Makes a certificate of that name. */
  public Tls of(String name, String algorithm) throws Exception {
    keytool("-genkeypair", name, "-keyalg", algorithm, "-dname", "CN=" + name, "-signer", "ca");
    KeyStore store = load();
    Path signed = folder.resolve(name + ".crt");
    writePem(signed, "CERTIFICATE", store.getCertificate(name).getEncoded());
    Key key = store.getKey(name, PASSWORD.toCharArray());
    writePem(folder.resolve(name + ".key"), "PRIVATE KEY", key.getEncoded());
    return Tls.of(signed, folder.resolve(name + ".key"), authority());
  }

  /** Returns a server engine that does not require client certificates. */
  public static SSLEngine acceptingAnybody(Tls tls) {
    SSLEngine engine = tls.accepting();
    engine.setNeedClientAuth(false);
    return engine;
  }

  public Path authority() {
    return folder.resolve("ca.pem");
  }

  private KeyStore load() throws Exception {
    KeyStore store = KeyStore.getInstance("PKCS12");
    try (InputStream in = Files.newInputStream(folder.resolve("store.p12"))) {
      store.load(in, PASSWORD.toCharArray());
    }
    return store;
  }

  private static void writePem(Path file, String kind, byte[] bytes) throws Exception {
    String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(bytes);
    Files.writeString(
        file, "-----BEGIN " + kind + "-----\n" + text + "\n-----END " + kind + "-----\n");
  }

  private void keytool(String command, String alias, String... more) throws Exception {
    List<String> words = new ArrayList<>();
    words.add(Path.of(System.getProperty("java.home"), "bin", "keytool").toString());
    words.addAll(List.of("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"));
    words.addAll(List.of(command, "-alias", alias, "-storepass", PASSWORD));
    words.addAll(List.of("-keystore", folder.resolve("store.p12").toString()));
    words.addAll(List.of(more));
    TestJvms.run(words);
  }
}
