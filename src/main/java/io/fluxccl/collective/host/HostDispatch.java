// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.Dispatch;
import io.fluxccl.collective.ExpertBatch;
import io.fluxccl.collective.ExpertShape;
import io.fluxccl.collective.host.HostRouted.HostScratch;
import io.fluxccl.device.Device;
import io.fluxccl.device.host.HostMemory;

/**
 * Sends tokens to the ranks of their experts. A header to each peer lists the tokens that follow
 * and the number for each of its experts, or names an invalid id. After the header follow the
 * tokens: values, scales, experts, weights.
 */
final class HostDispatch implements AutoCloseable {
  private static final int NO_EXPERT = -1;
  private static final int PREFIX = 2 * Integer.BYTES;

  private final int rank;
  private final int nRanks;
  private final PeerStreams streams;
  private final HostPlan plan;
  private final HostScratch headerMemory;
  private final HostScratch aboutMemory;
  private final int[] token; // the token of each peer's stream

  // State of the running call.
  private Dispatch call;
  private ExpertShape shape;
  private int each;
  private long headers;
  private long abouts;

  HostDispatch(int rank, int nRanks, PeerStreams streams, Device device) {
    this.rank = rank;
    this.nRanks = nRanks;
    this.streams = streams;
    this.plan = new HostPlan(nRanks);
    this.headerMemory = new HostScratch(device);
    this.aboutMemory = new HostScratch(device);
    this.token = new int[2 * nRanks];
  }

  /** Runs a call; returns early if the communicator is aborted. */
  void run(Dispatch newCall, long abort) {
    call = newCall;
    shape = call.batch().shape();
    each = shape.experts() / nRanks;
    plan.bind(call.batch());
    headers = headerMemory.reserve(2L * nRanks * headerBytes());
    abouts = aboutMemory.reserve((long) nRanks * aboutBytes());
    readIds();
    if (!streams.exchange(
        (peer, index, range) -> header(sentHeader(peer), index, range),
        (peer, index, range) -> header(receivedHeader(peer), index, range),
        abort)) {
      return;
    }
    HostMemory.copy(receivedHeader(rank), sentHeader(rank), headerBytes());
    readHeaders();
    copyOwn();
    streams.exchange(this::sent, this::received, abort);
  }

  private int headerBytes() {
    return PREFIX + (plan.words() + each) * Integer.BYTES;
  }

  private int aboutBytes() {
    return 2 * shape.topK() * Integer.BYTES;
  }

  private long sentHeader(int peer) {
    return headers + (long) peer * headerBytes();
  }

  private long receivedHeader(int peer) {
    return headers + (long) (nRanks + peer) * headerBytes();
  }

  private boolean header(long address, int index, PeerStreams.Range range) {
    range.set(address, headerBytes());
    return index == 0;
  }

  /** Finds which tokens go where, and fills in the headers. */
  private void readIds() {
    HostMemory.fill(headers, 2L * nRanks * headerBytes(), (byte) 0);
    int wrong = NO_EXPERT;
    for (int t = 0; t < shape.tokens(); t++) {
      for (int k = 0; k < shape.topK(); k++) {
        int id = id(t, k);
        if (id >= 0 && id < shape.experts()) {
          long header = sentHeader(id / each);
          long bits = header + PREFIX + (long) t / Integer.SIZE * Integer.BYTES;
          HostMemory.putInt(bits, HostMemory.getInt(bits) | 1 << t);
          long count = header + PREFIX + (long) (plan.words() + id % each) * Integer.BYTES;
          HostMemory.putInt(count, HostMemory.getInt(count) + 1);
        } else if (id != NO_EXPERT) {
          wrong = id;
        }
      }
    }
    for (int peer = 0; peer < nRanks; peer++) {
      HostMemory.putInt(sentHeader(peer), wrong == NO_EXPERT ? 0 : 1);
      HostMemory.putInt(sentHeader(peer) + Integer.BYTES, wrong);
    }
  }

  private int id(int t, int k) {
    return HostMemory.getInt(
        call.batch().ids().address() + ((long) t * shape.topK() + k) * Integer.BYTES);
  }

  /** Places the tokens, and refuses what is wrong; no token has been written then. */
  private void readHeaders() {
    ExpertBatch batch = call.batch();
    for (int from = 0; from < nRanks; from++) {
      if (HostMemory.getInt(receivedHeader(from)) != 0) {
        throw InvalidUsage.of(
            "%s: rank %d has id=%d, which is neither an expert nor -1",
            call, from, HostMemory.getInt(receivedHeader(from) + Integer.BYTES));
      }
      for (int word = 0; word < plan.words(); word++) {
        long at = PREFIX + (long) word * Integer.BYTES;
        plan.setSent(from, word, HostMemory.getInt(sentHeader(from) + at));
        plan.setReceived(from, word, HostMemory.getInt(receivedHeader(from) + at) & tokensOf(word));
      }
    }
    int total = plan.place();
    if (total > shape.capacity()) {
      throw InvalidUsage.of(
          "%s: rank %d would receive %d tokens, more than its capacity=%d",
          call, rank, total, shape.capacity());
    }
    for (int from = 0; from < nRanks; from++) {
      HostMemory.putInt(batch.perRank().address() + (long) from * Integer.BYTES, plan.count(from));
    }
    for (int expert = 0; expert < each; expert++) {
      int count = 0;
      for (int from = 0; from < nRanks; from++) {
        long at = PREFIX + (long) (plan.words() + expert) * Integer.BYTES;
        count += HostMemory.getInt(receivedHeader(from) + at);
      }
      HostMemory.putInt(batch.perExpert().address() + (long) expert * Integer.BYTES, count);
    }
  }

  /** Returns the bits of a word that stand for tokens. */
  private int tokensOf(int word) {
    int left = shape.tokens() - word * Integer.SIZE;
    return left >= Integer.SIZE ? -1 : (1 << left) - 1;
  }

  private void copyOwn() {
    for (int t = plan.nextReceived(rank, 0); t >= 0; t = plan.nextReceived(rank, t + 1)) {
      int place = plan.place(rank, t);
      int topK = shape.topK() * Integer.BYTES;
      HostMemory.copy(values(place), tokenValues(t), shape.tokenBytes());
      if (shape.scaleBytes() > 0) {
        HostMemory.copy(scales(place), tokenScales(t), shape.scaleBytes());
      }
      describe(t, rank);
      HostMemory.copy(ids(place), about(rank), topK);
      HostMemory.copy(weights(place), about(rank) + topK, topK);
      noteSource(rank, t, place);
    }
  }

  private void noteSource(int from, int t, int place) {
    HostMemory.putInt(
        call.batch().sources().address() + (long) place * Integer.BYTES, from * shape.tokens() + t);
  }

  private long tokenValues(int t) {
    return call.input().address() + (long) t * shape.tokenBytes();
  }

  private long tokenScales(int t) {
    return call.scales().address() + (long) t * shape.scaleBytes();
  }

  private long values(int place) {
    return call.output().address() + (long) place * shape.tokenBytes();
  }

  private long scales(int place) {
    return call.outputScales().address() + (long) place * shape.scaleBytes();
  }

  private long ids(int place) {
    return call.batch().receivedIds().address() + (long) place * shape.topK() * Integer.BYTES;
  }

  private long weights(int place) {
    return call.batch().receivedWeights().address() + (long) place * shape.topK() * Integer.BYTES;
  }

  private long about(int peer) {
    return abouts + (long) peer * aboutBytes();
  }

  /** Writes experts and weights of a token as a peer is to receive them. */
  private void describe(int t, int peer) {
    for (int k = 0; k < shape.topK(); k++) {
      int id = id(t, k) - peer * each;
      boolean isThere = id >= 0 && id < each;
      long weight =
          call.batch().weights().address() + ((long) t * shape.topK() + k) * Integer.BYTES;
      HostMemory.putInt(about(peer) + (long) k * Integer.BYTES, isThere ? id : NO_EXPERT);
      HostMemory.putInt(
          about(peer) + (long) (shape.topK() + k) * Integer.BYTES,
          isThere ? HostMemory.getInt(weight) : 0);
    }
  }

  /** Names what goes to a peer: three ranges a token. */
  private boolean sent(int peer, int index, PeerStreams.Range range) {
    int part = index % 3;
    if (part == 0) {
      token[peer] = plan.nextSent(peer, index == 0 ? 0 : token[peer] + 1);
      if (token[peer] < 0) {
        return false;
      }
    }
    if (part == 0) {
      range.set(tokenValues(token[peer]), shape.tokenBytes());
    } else if (part == 1) {
      range.set(shape.scaleBytes() == 0 ? 0 : tokenScales(token[peer]), shape.scaleBytes());
    } else {
      describe(token[peer], peer);
      range.set(about(peer), aboutBytes());
    }
    return true;
  }

  /** Names where the bytes from a peer go: four ranges a token. */
  private boolean received(int from, int index, PeerStreams.Range range) {
    int part = index % 4;
    int at = nRanks + from;
    if (part == 0) {
      token[at] = plan.nextReceived(from, index == 0 ? 0 : token[at] + 1);
      if (token[at] < 0) {
        return false;
      }
    }
    int place = plan.place(from, token[at]);
    switch (part) {
      case 0 -> range.set(values(place), shape.tokenBytes());
      case 1 -> range.set(shape.scaleBytes() == 0 ? 0 : scales(place), shape.scaleBytes());
      case 2 -> range.set(ids(place), aboutBytes() / 2);
      default -> {
        noteSource(from, token[at], place);
        range.set(weights(place), aboutBytes() / 2);
      }
    }
    return true;
  }

  @Override
  public void close() {
    headerMemory.close();
    aboutMemory.close();
  }

  /**
   * The routes of the tokens, as bits in the memory of a batch: the layout of {@code RoutePlan} in
   * {@code experts.cuh}, which GPUs use. Integers of 4 bytes, by rank and word; bit t % 32 of word
   * t / 32 is token t.
   */
  static final class HostPlan {
    private final int nRanks;
    private long sent;
    private long received;
    private long places;
    private int words;

    HostPlan(int nRanks) {
      this.nRanks = nRanks;
    }

    void bind(ExpertBatch batch) {
      words = (batch.shape().tokens() + Integer.SIZE - 1) / Integer.SIZE;
      long bytes = (long) nRanks * words * Integer.BYTES;
      sent = batch.plan().address();
      received = sent + bytes;
      places = received + bytes;
    }

    int words() {
      return words;
    }

    private long at(long part, int rank, int word) {
      return part + ((long) rank * words + word) * Integer.BYTES;
    }

    void setSent(int rank, int word, int bits) {
      HostMemory.putInt(at(sent, rank, word), bits);
    }

    int sent(int rank, int word) {
      return HostMemory.getInt(at(sent, rank, word));
    }

    void setReceived(int rank, int word, int bits) {
      HostMemory.putInt(at(received, rank, word), bits);
    }

    /** Places the received tokens in the order of ranks and tokens; returns how many there are. */
    int place() {
      int next = 0;
      for (int rank = 0; rank < nRanks; rank++) {
        for (int word = 0; word < words; word++) {
          HostMemory.putInt(at(places, rank, word), next);
          next += Integer.bitCount(HostMemory.getInt(at(received, rank, word)));
        }
      }
      return next;
    }

    /** Returns the first token from one on that this rank sends to another; negative if none. */
    int nextSent(int rank, int token) {
      return next(sent, rank, token);
    }

    /**
     * Returns the first token from one on that this rank receives from another; negative if none.
     */
    int nextReceived(int rank, int token) {
      return next(received, rank, token);
    }

    private int next(long part, int rank, int token) {
      int from = token;
      for (int word = token / Integer.SIZE; word < words; word++) {
        int bits = HostMemory.getInt(at(part, rank, word)) & -1 << from % Integer.SIZE;
        if (bits != 0) {
          return word * Integer.SIZE + Integer.numberOfTrailingZeros(bits);
        }
        from = 0;
      }
      return -1;
    }

    /** Returns how many tokens are received from a rank. */
    int count(int rank) {
      int count = 0;
      for (int word = 0; word < words; word++) {
        count += Integer.bitCount(HostMemory.getInt(at(received, rank, word)));
      }
      return count;
    }

    /** Returns the place of a token that is received from a rank. */
    int place(int rank, int token) {
      int word = token / Integer.SIZE;
      int before = HostMemory.getInt(at(received, rank, word)) & (1 << token % Integer.SIZE) - 1;
      return HostMemory.getInt(at(places, rank, word)) + Integer.bitCount(before);
    }
  }
}
