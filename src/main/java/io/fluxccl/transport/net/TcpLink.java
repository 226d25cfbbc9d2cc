// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.transport.tcp.EndOfStream;
import io.fluxccl.transport.tcp.TcpDial;
import io.fluxccl.transport.tcp.TcpHandle;
import io.fluxccl.transport.tcp.TcpServer;
import io.fluxccl.transport.tcp.TcpSocket;
import io.fluxccl.wire.SocketTable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedChannelException;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.agrona.CloseHelper;

/**
 * A link of ETHERNET: one socket, which carries the messages of both directions. {@link
 * TcpMessages} moves them; this class connects the socket, and replaces a lost one.
 *
 * <p><b>Roles.</b> The end of the lower rank dials, the other end listens. Two ends of one rank
 * compare their tokens. An end that is connected to itself does both: it sends on the socket that
 * it dialed, and receives on the socket that it accepted.
 *
 * <p><b>Hello.</b> The dialing end sends a {@link Hello} with the listening end's token, its own
 * rank, the round of the attempt, and the number of messages that it has received in full. The
 * listening end answers with a Hello of the same round, and the link is open. Each attempt of the
 * dialing end has a higher round. An end accepts every round above that of its last open link.
 *
 * <p><b>Loss.</b> An end that has lost its link closes the socket and sends no further message. The
 * dialing end dials again. The listening end waits for that; if no socket arrives soon, it dials
 * too. Such a call carries no messages: it tells the dialing end that the link is lost, and shows
 * the listening end whether its peer still exists. Its round is one above that of the last open
 * link, so a late call is dropped. When the link is open again, each end resends the messages from
 * the peer's count on.
 *
 * <p><b>Invariants.</b> For each direction, confirmed &lt;= received &lt;= posted, where the sender
 * counts what it has posted and what the peer has confirmed. An end stops receiving before it sends
 * its count, so no message is received twice. The token admits only the peer. {@link
 * #MOST_REFUSALS} refusals in a row prove that the peer's end is closed.
 */
final class TcpLink implements ResumableLink, TcpServer.Listener {
  /** The pause after a failed dial, and before the listening end calls. */
  private static final long RETRY_NS = TimeUnit.MILLISECONDS.toNanos(100);

  /** The time without progress after which an attempt is given up for the next one. */
  private static final long ROUND_NS = TimeUnit.SECONDS.toNanos(3);

  /** Fewer refusals do not prove an end closed: a listener drops a dial that is out of date. */
  private static final int MOST_REFUSALS = 3;

  /** The repetitions after which the peer's system counts as silent: one may be lost on the way. */
  private static final int UNANSWERED = 2;

  private final TcpNetwork network;
  private final int rank;
  private final int peerRank;
  private final byte[] token = TcpServer.newToken();
  private final byte[] address;

  /** Created when the link is opened first: most links of a large job never are. */
  private TcpMessages messages;

  /** The peer's address, or null before {@link #connect}. */
  private TcpHandle peer;

  /** Negative if this end dials, positive if it listens, 0 if it is connected to itself. */
  private int role;

  /** The round of the last open link, or -1. */
  private long opened = -1;

  /** The round of the current dial. */
  private long round = -1;

  /** The number of messages that this end has received in full, while the link is replaced. */
  private long received;

  private long peersCount;

  // The sockets of the open link, the same one unless the end is connected to itself; or null.
  private TcpSocket in;
  private TcpSocket out;

  private TcpDial dial;
  private ByteBuffer hello;
  private ByteBuffer answer;

  /** The latest socket that the peer has dialed and this end has not answered, or null. */
  private TcpSocket accepted;

  private Hello acceptedHello;

  private long dialNs;

  /** The number of steps that the current dial has done, and the time of the last one. */
  private int steps;

  private long stepNs;
  private int refusals;
  private FluxCclException hindrance;

  TcpLink(TcpNetwork network, int rank, int peerRank) {
    this.network = network;
    this.rank = rank;
    this.peerRank = peerRank;
    this.address = network.server().handle(token).encode();
    network.server().add(this);
  }

  /**
   * The first message of a socket, and the answer to it. Little-endian: int64 magic with a version,
   * 16 bytes token, int32 rank, int32 zero, int64 round, int64 received.
   *
   * @param token of the end that receives the hello
   * @param rank of the end that sends it
   * @param round of the attempt
   * @param received the number of messages that the sender has received in full
   */
  record Hello(byte[] token, int rank, long round, long received) {
    static final long MAGIC = 0x3130_4b4e_494c_5846L;
    static final int LENGTH = 48;

    ByteBuffer encode() {
      return ByteBuffer.allocateDirect(LENGTH)
          .order(ByteOrder.LITTLE_ENDIAN)
          .putLong(MAGIC)
          .put(token)
          .putInt(rank)
          .putInt(0)
          .putLong(round)
          .putLong(received)
          .flip();
    }

    /** Decodes a whole hello whose magic number is right. */
    static Hello decode(ByteBuffer bytes) {
      byte[] token = new byte[TcpHandle.TOKEN_LENGTH];
      ByteBuffer in = bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN).position(Long.BYTES);
      in.get(token);
      int rank = in.getInt();
      in.getInt();
      return new Hello(token, rank, in.getLong(), in.getLong());
    }
  }

  @Override
  public byte[] address() {
    return address.clone();
  }

  @Override
  public byte[] token() {
    return token;
  }

  @Override
  public void connect(byte[] peerAddress) {
    try {
      peer = TcpHandle.decode(ByteBuffer.wrap(peerAddress));
    } catch (InvalidUsage e) {
      throw new TransportFailure(
          peerRank, "the address of rank " + peerRank + " is malformed: " + e.getMessage());
    }
    int byRank = Integer.compare(rank, peerRank);
    role = byRank != 0 ? byRank : Arrays.compareUnsigned(token, peer.token());
    scheduleDial(System.nanoTime());
  }

  private void scheduleDial(long nowNs) {
    dialNs = role <= 0 ? nowNs : nowNs + RETRY_NS;
  }

  @Override
  public String take(TcpSocket socket, ByteBuffer bytes, long now) {
    Hello said = Hello.decode(bytes);
    if (said.rank() != peerRank || said.received() < 0) {
      return "is of rank " + said.rank() + ", round " + said.round();
    }
    if (said.round() <= opened) {
      socket.close(); // it was sent before the link was opened
      return null;
    }
    dropAccepted();
    accepted = socket;
    acceptedHello = said;
    return null;
  }

  @Override
  public boolean isChallenged() {
    return accepted != null;
  }

  @Override
  public void restart(long count, long nowNs) {
    closeSockets();
    messages.reset();
    received = count;
    refusals = 0;
    hindrance = null;
    scheduleDial(nowNs);
  }

  @Override
  public boolean poll(long nowNs) {
    accept(nowNs);
    if (role >= 0 && accepted != null) {
      answerPeer();
    }
    if (out == null || in == null) {
      dial(nowNs);
    }
    if (out == null || in == null) {
      return false;
    }
    opened = Math.max(opened, round);
    // A call of the listening end has been heard by now.
    dropAccepted();
    CloseHelper.quietClose(role > 0 ? dial : null);
    dial = null;
    messages = messages == null ? new TcpMessages() : messages;
    messages.use(in, out);
    return true;
  }

  /** Serves the listener. A link that resumes may not need it, so a failure does not end that. */
  private void accept(long nowNs) {
    try {
      network.server().poll(nowNs);
    } catch (TransportFailure e) {
      if (opened < 0) {
        throw e;
      }
      hindrance = e;
    }
  }

  /** Opens the link on the socket that the peer has dialed. */
  private void answerPeer() {
    TcpSocket socket = accepted;
    accepted = null;
    try {
      // A peer is silent before the answer; it may have given up the attempt.
      if (socket.read(ByteBuffer.allocate(1)) != 0) {
        throw new EndOfStream();
      }
      socket.limitLocalSends();
      socket.write(new Hello(peer.token(), rank, acceptedHello.round(), received).encode());
    } catch (IOException e) {
      // The peer dials again, if it exists.
      socket.close();
      return;
    }
    CloseHelper.quietClose(in == null ? null : in::close);
    in = socket;
    if (role > 0) {
      out = socket;
      peersCount = acceptedHello.received();
      round = acceptedHello.round();
    }
  }

  /** Dials if it is time, and advances the dial. */
  private void dial(long nowNs) {
    if (nowNs - dialNs < 0) {
      return;
    }
    try {
      if (dial == null) {
        stepNs = nowNs;
        steps = 0;
        // A call has the next round in any case: one that arrives late replaces no link then.
        round = (role > 0 ? opened : Math.max(round, opened)) + 1;
        hello = new Hello(peer.token(), rank, round, received).encode();
        answer = ByteBuffer.allocateDirect(Hello.LENGTH).order(ByteOrder.LITTLE_ENDIAN);
        dial = network.dial(peer);
      }
      if (out == null && dial.sendHello(hello) && dial.readAnswer(answer) && role <= 0) {
        checkAnswer();
        refusals = 0;
        out = dial.socket();
        in = role < 0 ? out : in;
      }
      checkProgress(nowNs);
    } catch (RemoteFailure e) {
      if (opened < 0 && role <= 0 || ++refusals == MOST_REFUSALS) {
        throw e;
      }
      hindered(e, nowNs);
    } catch (TransportFailure e) {
      if (opened < 0 && role <= 0) {
        throw e;
      }
      refusals = 0;
      hindered(e, nowNs);
    }
  }

  /** Gives up an attempt to replace the link that makes no progress. */
  private void checkProgress(long nowNs) {
    int done = dial.steps() + (out == null ? 0 : 1);
    if (done > steps) {
      steps = done;
      stepNs = nowNs;
    }
    // The first connect has a limit of its own.
    if (opened >= 0 && (out == null || in == null) && nowNs - stepNs > ROUND_NS) {
      refusals = 0;
      long seconds = TimeUnit.NANOSECONDS.toSeconds(ROUND_NS);
      hindrance = new TransportFailure(peerRank, "no answer in " + seconds + " s" + unreached());
      hangUp(nowNs);
    }
  }

  private void checkAnswer() {
    Hello said = Hello.decode(answer.flip());
    boolean isRight =
        answer.getLong(0) == Hello.MAGIC
            && MessageDigest.isEqual(said.token(), token)
            && said.rank() == peerRank
            && said.round() == round
            && said.received() >= 0;
    if (!isRight) {
      throw new TransportFailure(
          peerRank, "connect to " + peer + ": another process than the peer answers there");
    }
    peersCount = said.received();
  }

  private void hindered(FluxCclException e, long nowNs) {
    hindrance = e;
    hangUp(nowNs + RETRY_NS);
  }

  /** Closes the dial; another one begins at the given time. */
  private void hangUp(long againNs) {
    CloseHelper.quietClose(dial);
    dial = null;
    out = null;
    dialNs = againNs;
  }

  private void dropAccepted() {
    if (accepted != null) {
      accepted.close();
      accepted = null;
    }
  }

  private void closeSockets() {
    CloseHelper.quietClose(dial);
    dial = null;
    TcpSocket.close(new TcpSocket[] {in, out});
    in = null;
    out = null;
  }

  @Override
  public long peersCount() {
    return peersCount;
  }

  @Override
  public FluxCclException hindrance() {
    return hindrance;
  }

  @Override
  public String missing() {
    if (peer == null) {
      return "it has not received its peer's address";
    }
    String reason = hindrance == null ? "" : "; " + hindrance.getMessage();
    return (role <= 0 && out == null
            ? "it has not answered" + unreached()
            : "it has not connected to this rank")
        + reason;
  }

  private String unreached() {
    return " at "
        + peer
        + " (does a firewall let its port through? See FLUXCCL_PORT_RANGE, and FLUXCCL_ADDR for the"
        + " interface)";
  }

  @Override
  public CompletableFuture<Boolean> isAnswered() {
    String key;
    try {
      key = SocketTable.key(out.channel().getLocalAddress(), out.channel().getRemoteAddress());
    } catch (IOException e) {
      return CompletableFuture.completedFuture(false); // it is closed
    }
    return SocketTable.find(Set.of(key), BlockingTasks.EXECUTOR)
        .thenApply(rows -> rows.containsKey(key) && rows.get(key).unanswered() < UNANSWERED);
  }

  @Override
  public boolean watchedBy(NetWaiter waiter) {
    messages.watchedBy(waiter);
    return true;
  }

  @Override
  public int capacity() {
    return TcpMessages.CAPACITY;
  }

  @Override
  public long send(
      long head, int headLength, OwnedMemory source, long body, int bodyLength, boolean more) {
    return messages.send(head, headLength, body, bodyLength, more);
  }

  @Override
  public long taken() {
    return messages.taken();
  }

  @Override
  public boolean receiveHead(long place, HeadReader reader) {
    try {
      return messages.receiveHead(place, reader);
    } catch (IOException e) {
      throw lost(e);
    }
  }

  @Override
  public boolean receiveBody(int slot, long head, OwnedMemory target, long start, int length) {
    messages.receiveBody(start, length);
    return true;
  }

  @Override
  public boolean isReceived(int slot) {
    try {
      return messages.isBodyReceived();
    } catch (IOException e) {
      throw lost(e);
    }
  }

  private FluxCclException lost(IOException e) {
    String reason = e instanceof ClosedChannelException ? "" : e.getMessage();
    String message = "the socket with " + in.remote() + ": " + reason;
    // All other errors are failures of the peer or of the path to it. The system's texts can't tell
    // them apart: they depend on the locale.
    return e instanceof ClosedChannelException
        ? new TransportFailure(peerRank, message + "closed here", e)
        : new RemoteFailure(
            peerRank, message + "; the peer has ended, or the path to it has failed");
  }

  @Override
  public void close() {
    network.server().remove(this);
    dropAccepted();
    closeSockets();
  }
}
