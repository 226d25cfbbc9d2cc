// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.collective.ExpertBatch;
import io.fluxccl.device.host.HostMemory;

/**
 * The routes of the tokens, as bits in the memory of a batch: the layout of {@code RoutePlan} in
 * {@code experts.cuh}, which GPUs use. Integers of 4 bytes, by rank and word; bit t % 32 of word t
 * / 32 is token t.
 */
final class HostPlan {
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

  /** Returns the first token from one on that this rank receives from another; negative if none. */
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
