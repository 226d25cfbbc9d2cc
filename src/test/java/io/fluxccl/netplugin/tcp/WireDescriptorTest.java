// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.transport.tcp.TcpHandle;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;
import net.jqwik.api.constraints.Size;
import net.jqwik.api.constraints.StringLength;

/** Received descriptors are untrusted: each is decoded correctly, or refused. */
class WireDescriptorTest {
  @Property
  void shouldReadTheHandleThatWasWritten(
      @ForAll @Size(16) byte[] token,
      @ForAll @Size(4) byte[] address,
      @ForAll @IntRange(min = 1, max = 65535) int port,
      @ForAll @Size(32) byte[] fingerprint)
      throws UnknownHostException {
    byte[] handle =
        new TcpHandle(
                new InetSocketAddress(InetAddress.getByAddress(address), port), token, fingerprint)
            .encode();
    TcpHandle read = TcpHandle.decode(ByteBuffer.wrap(handle));
    assertThat(read.address().getAddress().getAddress()).isEqualTo(address);
    assertThat(read.address().getPort()).isEqualTo(port);
    assertThat(read.token()).isEqualTo(token);
    boolean isSecured = !Arrays.equals(fingerprint, new byte[32]);
    assertThat(read.fingerprint()).isEqualTo(isSecured ? fingerprint : null);
  }

  @Property
  void shouldRefuseAHandleThatIsNone(@ForAll @Size(128) byte[] bytes, @ForAll boolean nearly)
      throws UnknownHostException {
    if (nearly) {
      byte[] right =
          new TcpHandle(
                  new InetSocketAddress(InetAddress.getLoopbackAddress(), 1), new byte[16], null)
              .encode();
      System.arraycopy(right, 0, bytes, 0, Long.BYTES);
    }
    try {
      assertThat(TcpHandle.decode(ByteBuffer.wrap(bytes)).token()).hasSize(16);
    } catch (InvalidUsage e) {
      assertThat(e).hasMessageContaining("handle");
    }
  }

  @Property
  void shouldReadTheHelloThatWasWritten(
      @ForAll @Size(16) byte[] token,
      @ForAll long connection,
      @ForAll @IntRange(min = 1, max = TcpOptions.MAX_STREAMS) int streams) {
    for (int stream = 0; stream < WireDescriptor.sockets(streams); stream++) {
      ByteBuffer buffer = WireDescriptor.buffer(WireDescriptor.HELLO_LENGTH);
      WireDescriptor.putHello(
          buffer, new WireDescriptor.Hello(token, connection, stream, streams, "host:1"));
      WireDescriptor.Hello read = WireDescriptor.readHello(buffer);
      assertThat(read.token()).isEqualTo(token);
      assertThat(read.connection()).isEqualTo(connection);
      assertThat(read.stream()).isEqualTo(stream);
      assertThat(read.streams()).isEqualTo(streams);
      assertThat(read.name()).isEqualTo("host:1");
    }
  }

  @Property
  void shouldTakeNoHelloThatNamesNoStream(
      @ForAll @Size(WireDescriptor.HELLO_LENGTH) byte[] bytes, @ForAll boolean nearly) {
    ByteBuffer buffer = WireDescriptor.buffer(WireDescriptor.HELLO_LENGTH);
    WireDescriptor.putHello(buffer, new WireDescriptor.Hello(new byte[16], 1, 0, 1, "host:1"));
    buffer.clear();
    int from = nearly ? Long.BYTES : 0;
    buffer.position(from).put(bytes, from, bytes.length - from).flip();
    WireDescriptor.Hello read = WireDescriptor.readHello(buffer);
    if (read != null) {
      assertThat(read.streams()).isBetween(1, TcpOptions.MAX_STREAMS);
      assertThat(read.stream()).isBetween(0, WireDescriptor.sockets(read.streams()) - 1);
      assertThat(read.name()).matches("[\\w.:-]*");
    }
  }

  @Property
  void shouldReadAnyErrorAndAnyPartOfOne(
      @ForAll @StringLength(max = 2000) String text, @ForAll @IntRange(max = 600) int length) {
    ByteBuffer whole = WireDescriptor.error(FluxCclException.of(ErrorCode.INVALID_USAGE, 0, text));
    int capacity = WireDescriptor.ERROR_HEADER_LENGTH + WireDescriptor.MAX_ERROR_TEXT;
    assertThat(whole.remaining()).isLessThanOrEqualTo(capacity);
    ByteBuffer told = WireDescriptor.buffer(capacity);
    told.put(whole.slice(0, Math.min(length, whole.remaining())));
    assertThat(WireDescriptor.readError(told)).isNotNull();
  }

  @Property
  void shouldReadAnErrorOfRandomBytes(@ForAll @Size(max = 524) byte[] bytes) {
    ByteBuffer told = WireDescriptor.buffer(524);
    told.put(bytes);
    assertThat(WireDescriptor.readError(told)).isNotNull();
  }

  @Property
  void shouldReadTheHeaderThatWasWritten(@ForAll int tag, @ForAll @LongRange(min = 0) long size) {
    ByteBuffer buffer = WireDescriptor.buffer(2 * WireDescriptor.HEADER_LENGTH);
    WireDescriptor.putHeader(buffer, WireDescriptor.HEADER_LENGTH, tag, size);
    assertThat(WireDescriptor.sizeAt(buffer, WireDescriptor.HEADER_LENGTH)).isEqualTo(size);
    assertThat(WireDescriptor.tagAt(buffer, WireDescriptor.HEADER_LENGTH)).isEqualTo(tag);
    assertThat(WireDescriptor.sizeAt(buffer, 0)).isEqualTo(-1);
  }
}
