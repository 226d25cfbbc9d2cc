// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static org.assertj.core.api.Assertions.assertThat;

import com.code_intelligence.jazzer.api.BugDetectors;
import com.code_intelligence.jazzer.api.FuzzedDataProvider;
import com.code_intelligence.jazzer.api.SilentCloseable;
import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.transport.tcp.TcpHandle;
import io.fluxccl.transport.tcp.TcpSocket;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.agrona.BufferUtil;

/** Parses random bytes of a peer, in its hello and later: each gives a message or a typed error. */
class TcpFuzzTest {
  private static final int ROOM = 256;
  private static final int GUARD = 64;
  private static final byte UNTOUCHED = 0x5a;

  @FuzzTest(maxDuration = "75s")
  void hello(byte[] bytes) {
    ByteBuffer in = WireDescriptor.buffer(WireDescriptor.HELLO_LENGTH);
    in.put(Arrays.copyOf(bytes, WireDescriptor.HELLO_LENGTH));
    WireDescriptor.Hello hello = WireDescriptor.readHello(in);
    if (hello != null) {
      assertThat(hello.stream()).isBetween(0, WireDescriptor.sockets(hello.streams()) - 1);
      assertThat(hello.name()).matches("[\\w.:-]*");
    }
  }

  /** Parses random answers of a listener on the connecting side. */
  @FuzzTest(maxDuration = "75s")
  void answer(byte[] bytes) {
    ByteBuffer welcome = WireDescriptor.buffer(WireDescriptor.WELCOME_LENGTH);
    welcome.put(Arrays.copyOf(bytes, WireDescriptor.WELCOME_LENGTH));
    String name = WireDescriptor.readWelcome(welcome);
    assertThat(name == null || name.matches("[\\w.:-]*")).isTrue();
    int room = WireDescriptor.ERROR_HEADER_LENGTH + WireDescriptor.MAX_ERROR_TEXT;
    ByteBuffer error = WireDescriptor.buffer(room);
    error.put(bytes, 0, Math.min(bytes.length, room));
    assertThat(WireDescriptor.readError(error)).isNotNull();
  }

  @FuzzTest(maxDuration = "75s")
  void handle(byte[] bytes) {
    try {
      TcpHandle.decode(ByteBuffer.wrap(Arrays.copyOf(bytes, TcpHandle.LENGTH)));
    } catch (InvalidUsage expected) {
      return;
    }
  }

  @FuzzTest(maxDuration = "75s")
  void messages(FuzzedDataProvider input) throws IOException {
    byte[] bytes = stream(input);
    ByteBuffer memory = BufferUtil.allocateDirectAligned(2 * GUARD + 3 * ROOM, 64);
    for (int i = 0; i < memory.capacity(); i++) {
      memory.put(i, UNTOUCHED);
    }
    long start = BufferUtil.address(memory) + GUARD;
    // The sockets are the test's, not the input's.
    try (SilentCloseable ours = BugDetectors.allowNetworkConnections();
        ServerSocketChannel server = ServerSocketChannel.open();
        SocketChannel sender = SocketChannel.open()) {
      server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
      sender.connect(server.getLocalAddress());
      TcpSocket[] sockets = {new TcpSocket(server.accept())};
      try (TcpRecvComm comm = new TcpRecvComm(Shared.PLUGIN, 0, "a fuzzer", sockets);
          NetMemory registered = comm.register(start, 3 * ROOM, PointerType.HOST)) {
        List<NetRequest> requests = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
          requests.add(comm.irecv(start + i * ROOM, ROOM, 0, registered));
        }
        sender.write(ByteBuffer.wrap(bytes));
        sender.shutdownOutput();
        requests.forEach(TcpFuzzTest::end);
      }
    }
    for (int i = 0; i < GUARD; i++) {
      assertThat(memory.get(i)).isEqualTo(UNTOUCHED);
      assertThat(memory.get(GUARD + 3 * ROOM + i)).isEqualTo(UNTOUCHED);
    }
  }

  /** Writes headers that are right or nearly so, and any bytes between them. */
  private static byte[] stream(FuzzedDataProvider input) {
    ByteBuffer out = ByteBuffer.allocate(1 << 16).order(ByteOrder.LITTLE_ENDIAN);
    while (input.remainingBytes() > 0 && out.remaining() > 2 * ROOM) {
      int at = out.position();
      if (input.consumeBoolean()) {
        WireDescriptor.putHeader(out, at, input.consumeInt(), size(input));
        out.position(at + WireDescriptor.HEADER_LENGTH);
      } else {
        out.put(input.consumeBytes(input.consumeInt(0, ROOM + 1)));
      }
    }
    return Arrays.copyOf(out.array(), out.position());
  }

  private static long size(FuzzedDataProvider input) {
    return input.consumeBoolean() ? input.consumeLong(0, ROOM + 1) : input.consumeLong();
  }

  private static void end(NetRequest request) {
    try {
      while (!request.test()) {
        Thread.onSpinWait();
      }
      assertThat(request.size(0)).isBetween(0L, (long) ROOM);
    } catch (FluxCclException expected) {
      return;
    }
  }

  /** Opened with the first input. */
  private static final class Shared {
    static final TcpNetPlugin PLUGIN = new TcpNetPlugin(TcpFixture.OPTIONS);
  }
}
