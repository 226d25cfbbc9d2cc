// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Attach;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.FormedAsProposed;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.Hello;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Accept;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Beat;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.bootstrap.Roster.Term;
import io.fluxccl.bootstrap.SessionKey.FrameMac;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.agrona.CloseHelper;

/** A process of a job that sends and reads single frames, for tests. */
final class RawPeer implements AutoCloseable {
  private static final long READ_SECONDS = 30;

  private final long id = ThreadLocalRandom.current().nextLong() | 1;
  private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
  private final SessionKey key;
  private Socket socket;
  private DataInputStream in;
  private FrameMac signs;

  /** The nonce of the link's first connection. */
  private byte[] session;

  /** The frames of the link that this process has read, as far as they count. */
  private long received;

  RawPeer(SessionKey key) throws IOException {
    this.key = key;
  }

  /** Creates a process of a job without a secret. */
  RawPeer() throws IOException {
    this(SessionKey.withoutSecret(""));
  }

  InetSocketAddress address() {
    return TcpRanks.loopback(listener.getLocalPort());
  }

  // ---- connections ----

  /** Connects as soon as a process listens at the address, and proves itself. */
  Verdict connect(LinkKind kind, InetSocketAddress to) throws IOException {
    return connect(kind, Resume.NONE, to);
  }

  private Verdict connect(LinkKind kind, Resume resume, InetSocketAddress to) throws IOException {
    use(TcpRanks.knock(to));
    Proof proof = Proof.of(kind, address(), id, 0, resume);
    if (kind == LinkKind.LINK) {
      session = proof.nonce();
      received = 0;
    }
    send(new Hello());
    Greeting greeting = read(Greeting.class);
    send(proof.withMac(key.connectorProof(proof, greeting.nonce(), BootstrapFrame.NO_BYTES)));
    Verdict verdict = read(Verdict.class);
    signs = key.frames(true, proof, greeting.nonce(), BootstrapFrame.NO_BYTES);
    return verdict;
  }

  /** Accepts the next connection at its own address, and answers its proof. */
  void accept(Admission admission) throws IOException {
    accept(listener, admission);
  }

  private void accept(ServerSocket at, Admission admission) throws IOException {
    use(at.accept());
    byte[] nonce = SessionKey.nonce(BootstrapFrameCodec.NONCE_BYTES);
    send(new Greeting(nonce));
    Proof proof = read(Proof.class);
    Verdict verdict = new Verdict(admission, address(), id, 0, BootstrapFrame.NO_BYTES);
    send(verdict.withMac(key.acceptorProof(proof, nonce, BootstrapFrame.NO_BYTES, verdict)));
  }

  private void use(Socket next) throws IOException {
    socket = next;
    socket.setSoTimeout(60_000);
    in = new DataInputStream(socket.getInputStream());
    signs = null;
  }

  /** Opens a link with the process at an address, and returns that process's own address. */
  InetSocketAddress link(InetSocketAddress to) throws IOException {
    Verdict verdict = connect(LinkKind.LINK, to);
    assertThat(verdict.admission()).isEqualTo(Admission.WELCOME);
    send(new Attach());
    return verdict.address();
  }

  /** Resumes the link on another connection, from the last frame that this process has read. */
  Verdict resume(InetSocketAddress to) throws IOException {
    return resume(to, session, received);
  }

  Verdict resumeFrom(long count, InetSocketAddress to) throws IOException {
    return resume(to, session, count);
  }

  Verdict resume(InetSocketAddress to, byte[] link, long count) throws IOException {
    return connect(LinkKind.RESUME, new Resume(link, count), to);
  }

  // ---- groups ----

  private Contact contact() {
    return new Contact(address(), id, id, id, id, "raw peer");
  }

  /** Requests a rank of the job at an address over a new link. */
  void requestRank(int rank, int size, InetSocketAddress at) throws IOException {
    requestRank(contact(), rank, size, at);
  }

  /** Requests a rank for a process, which may be another one. */
  void requestRank(Contact member, int rank, int size, InetSocketAddress at) throws IOException {
    link(at);
    Duration limit = Duration.ofSeconds(60);
    JoinRequest request =
        new JoinRequest(Kind.FIXED, rank, size, size, Duration.ZERO, limit, Map.of());
    Nonce none = Roster.NONE.nonce();
    send(new Join(member, 0, none, Term.NONE, Ballot.EMPTY, request, List.of()));
  }

  /** Requests a rank, and returns the roster of the group when it has formed. */
  Roster join(int rank, int size, InetSocketAddress at) throws IOException {
    requestRank(rank, size, at);
    Propose proposal = read(Propose.class);
    send(new Accept(proposal.term()));
    read(FormedAsProposed.class);
    return proposal.roster();
  }

  /** Forms a group of two as its rank 0, with the process that connects to the job's address. */
  void lead(ServerSocket job) throws IOException {
    accept(job, Admission.WELCOME);
    Join join = read(Join.class);
    Term term = new Term(1, 1, 0);
    List<Integer> previousRanks = List.of(Roster.NEWCOMER, Roster.NEWCOMER);
    Roster roster =
        new Roster(term, new Nonce(id, id), List.of(contact(), join.member()), previousRanks);
    send(new Propose(term, join.base(), roster));
    read(Accept.class);
    send(new FormedAsProposed(roster.nonce()));
  }

  // ---- frames ----

  long received() {
    return received;
  }

  void send(BootstrapFrame... frames) throws IOException {
    for (BootstrapFrame each : frames) {
      ByteBuf body = BootstrapFrameCodec.encode(each);
      byte[] code = signs == null ? BootstrapFrame.NO_BYTES : signs.next(body);
      ByteBuf length = Unpooled.buffer().writeInt(body.readableBytes() + code.length);
      ByteBuf all = Unpooled.wrappedBuffer(length, body, Unpooled.wrappedBuffer(code));
      all.readBytes(socket.getOutputStream(), all.readableBytes());
      all.release();
    }
  }

  /** Reads frames up to one of a type, and returns that one. */
  <F extends BootstrapFrame> F read(Class<F> type) throws IOException {
    long endNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(READ_SECONDS);
    while (System.nanoTime() < endNanos) {
      byte[] bytes = in.readNBytes(in.readInt());
      int length = bytes.length - (signs == null ? 0 : FrameMac.BYTES);
      BootstrapFrame frame = BootstrapFrameCodec.decode(Unpooled.wrappedBuffer(bytes, 0, length));
      received += counts(frame) ? 1 : 0;
      if (type.isInstance(frame)) {
        return type.cast(frame);
      }
    }
    throw new IOException("only other frames than " + type.getSimpleName());
  }

  private static boolean counts(BootstrapFrame frame) {
    return frame instanceof Data
        || frame instanceof FormedAsProposed
        || (frame instanceof JoinMessage
            && !(frame instanceof Beat)
            && !(frame instanceof Waiting));
  }

  /** Resets the connection. */
  void reset() throws IOException {
    socket.setSoLinger(true, 0);
    socket.close();
  }

  /** Ends as a killed process does: its port refuses connections. */
  @Override
  public void close() {
    CloseHelper.closeAll(listener, socket);
  }
}
