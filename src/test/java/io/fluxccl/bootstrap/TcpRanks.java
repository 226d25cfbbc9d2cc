// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Ranks over TCP in one JVM, for tests. */
final class TcpRanks {
  private TcpRanks() {}

  static List<TcpBootstrap> create(int nRanks, BootstrapOptions options) {
    return IntStream.range(0, nRanks)
        .mapToObj(rank -> TcpBootstrap.create(rank, nRanks, options))
        .collect(Collectors.toList());
  }

  static List<TcpBootstrap> byId(int nRanks, BootstrapOptions options) {
    UniqueId id = TcpBootstrap.createUniqueId(options);
    List<TcpBootstrap> ranks = create(nRanks, options);
    BootstrapContract.await(BootstrapContract.onAll(ranks, each -> each.initialize(id)));
    return ranks;
  }

  static List<TcpBootstrap> byAddress(int nRanks, BootstrapOptions options) {
    return byAddress(nRanks, options, "127.0.0.1:" + freePort());
  }

  static List<TcpBootstrap> byAddress(int nRanks, BootstrapOptions options, String address) {
    List<TcpBootstrap> ranks = create(nRanks, options);
    BootstrapContract.await(BootstrapContract.onAll(ranks, each -> each.initialize(address)));
    return ranks;
  }

  /** Closes every socket of a rank and sends nothing, as if its process had died. */
  static CompletableFuture<Void> kill(TcpBootstrap rank) {
    return CompletableFuture.runAsync(
        () -> {
          rank.left = CompletableFuture.completedFuture(null);
          rank.links.stopSending("was killed");
          rank.control.stop();
          rank.channels().close();
          if (rank.localRoot != null) {
            rank.localRoot.kill();
            rank.localRoot = null;
          }
        },
        rank.loop);
  }

  /** Encodes a frame as on the wire, with its length first. */
  static byte[] encode(BootstrapFrame frame) {
    ByteBuf body = BootstrapFrameCodec.encode(frame);
    byte[] bytes = new byte[Frames.LENGTH_BYTES + body.readableBytes()];
    ByteBuffer.wrap(bytes).putInt(body.readableBytes());
    body.readBytes(bytes, Frames.LENGTH_BYTES, body.readableBytes());
    body.release();
    return bytes;
  }

  static int freePort() {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }
}
