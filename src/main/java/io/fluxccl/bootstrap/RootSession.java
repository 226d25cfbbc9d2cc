// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.Text;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Register;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;

/** The root's side of one rank's connection. Only on the event loop. */
final class RootSession extends ResumingSession {
  final int rank;
  Register register; // null until the rank has registered
  private final BootstrapRoot root;

  RootSession(BootstrapRoot root, int rank, byte[] id, Channel channel) {
    super(id, channel);
    this.root = root;
    this.rank = rank;
  }

  /** Returns the failure of a job whose rank has died. */
  Failed death(String when) {
    String process = register == null ? "" : " (" + register.process() + ")";
    String text = "rank %s%s died%s: its connection with the root ended without a goodbye";
    return new Failed(ErrorCode.REMOTE_FAILURE, rank, Text.of(text, rank, process, when));
  }

  @Override
  void received(ChannelHandlerContext ctx, BootstrapFrame frame) {
    if (frame instanceof Register first && register == null) {
      register = first;
      root.registered(this);
    } else if (frame instanceof Failed reason) {
      root.failed(reason);
    } else if (!(frame instanceof Data data && root.arrived(rank, data))
        && !(frame instanceof Pong)) {
      ctx.close();
    }
  }

  @Override
  boolean mayResume() {
    return register != null && !receivedGoodbye() && !root.finished.get();
  }

  @Override
  void reconnectOrProbe() {
    Frames.probe(root.loop, register.member().address(), root.channels, this::later, this::end);
  }

  @Override
  void ended() {
    root.closed(this);
  }

  @Override
  void resumed() {
    root.stopListening();
  }
}
