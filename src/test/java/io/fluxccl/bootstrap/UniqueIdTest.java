// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;

import java.net.InetSocketAddress;
import java.util.HexFormat;
import net.jqwik.api.Example;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.Size;

@net.jqwik.api.Tag("jdk")
class UniqueIdTest {
  private static UniqueId id(byte[] ip, int port, byte[] secret) {
    return UniqueId.of(new InetSocketAddress(UniqueId.addressOf(ip, 0), port), secret);
  }

  @Property(tries = 200)
  void shouldDecodeEncodedIds(
      @ForAll @Size(16) byte[] ip,
      @ForAll boolean v4,
      @ForAll @IntRange(min = 1, max = 65535) int port,
      @ForAll @Size(32) byte[] secret) {
    UniqueId id = id(v4 ? java.util.Arrays.copyOf(ip, 4) : ip, port, secret);
    assertThat(id.toBytes()).hasSize(UniqueId.LENGTH);
    for (UniqueId read :
        new UniqueId[] {UniqueId.fromBytes(id.toBytes()), UniqueId.fromBase64(id.toBase64())}) {
      assertThat(read).isEqualTo(id).hasSameHashCodeAs(id);
      assertThat(read.address()).isEqualTo(id.address());
      assertThat(read.secret()).isEqualTo(secret);
    }
  }

  @Property(tries = 300)
  void shouldRefuseAnIdOfWhichAByteChanged(
      @ForAll @IntRange(max = 127) int at, @ForAll @IntRange(min = 1, max = 255) int change) {
    byte[] bytes = id(new byte[] {10, 0, 0, 1}, 4711, new byte[32]).toBytes();
    bytes[at] ^= (byte) change;
    assertRefused(() -> UniqueId.fromBytes(bytes));
  }

  @Property(tries = 300)
  void shouldRefuseAnyOtherInput(@ForAll @Size(max = 200) byte[] bytes, @ForAll String text) {
    assertRefused(() -> UniqueId.fromBytes(bytes));
    assertRefused(() -> UniqueId.fromBase64(text));
  }

  @Example
  void shouldRefuseNull() {
    assertRefused(() -> UniqueId.fromBytes(null));
    assertRefused(() -> UniqueId.fromBase64(null));
  }

  @Example
  void shouldNotPrintTheSecret() {
    byte[] secret = new byte[32];
    java.util.Arrays.fill(secret, (byte) 0xAB);
    String text = id(new byte[] {10, 0, 0, 1}, 4711, secret).toString();
    assertThat(text).contains("10.0.0.1:4711");
    assertThat(text.toLowerCase()).doesNotContain(HexFormat.of().formatHex(secret, 0, 4));
    assertThat(JobSecret.of("0123456789abcdef").toString()).doesNotContain("0123");
  }
}
