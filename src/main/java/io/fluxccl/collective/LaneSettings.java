package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.communicator.Communicator;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * What must be the same on every rank for all of them to choose the same algorithms. Ranks tell
 * each other before anything is connected, so that a difference is {@link InvalidUsage} on all of
 * them and not a hang.
 */
final class LaneSettings {
  private static final int MOST_BYTES = 64 * 1024;

  private final List<AlgorithmFamily> families;
  private final Tuning tuning;
  private final InvalidUsage refused;
  private final List<String> lines;

  private LaneSettings(
      List<AlgorithmFamily> families, Tuning tuning, InvalidUsage refused, List<String> lines) {
    this.families = families;
    this.tuning = tuning;
    this.refused = refused;
    this.lines = lines;
  }

  /**
   * This rank's; reads the tuning file, so it may block. One file that can't be read is remembered:
   * the peers must hear of it.
   */
  static LaneSettings of(CollectivesOptions options, List<AlgorithmFamily> families) {
    Tuning tuning = Tuning.NONE;
    InvalidUsage refused = null;
    String fingerprint = "none";
    if (options.tuning().isPresent()) {
      try {
        tuning = Tuning.read(options.tuning().get());
        fingerprint = tuning.fingerprint();
      } catch (InvalidUsage e) {
        refused = e;
        fingerprint = "refused";
      }
    }
    String names = families.stream().map(AlgorithmFamily::name).collect(Collectors.joining(","));
    Map<Collective, String> chosen = new TreeMap<>(options.algorithms());
    return new LaneSettings(
        families,
        tuning,
        refused,
        List.of(
            "families=" + names,
            "algorithms=" + chosen,
            "tuning=" + fingerprint,
            "checked=" + options.checked()));
  }

  /** What algorithms there are, in the order of their names. */
  List<AlgorithmFamily> families() {
    return families;
  }

  /** The rules of the tuning file, or none. */
  Tuning tuning() {
    return tuning;
  }

  /**
   * Compares with all peers.
   *
   * @return completes when all have the same; with {@link InvalidUsage} that tells a difference
   */
  CompletableFuture<Void> compare(Communicator communicator, int tag, Deadline deadline) {
    int rank = communicator.bootstrap().rank();
    byte[] mine = String.join("\n", lines).getBytes(StandardCharsets.UTF_8);
    CompletableFuture<?>[] comparisons =
        IntStream.range(0, communicator.bootstrap().nRanks())
            .filter(peer -> peer != rank)
            .mapToObj(
                peer ->
                    communicator
                        .exchange(peer, tag, mine, deadline)
                        .thenAccept(theirs -> compare(rank, peer, theirs)))
            .toArray(CompletableFuture<?>[]::new);
    return CompletableFuture.allOf(comparisons)
        .handle(
            (done, failure) -> {
              // This rank's own trouble explains more than that the others don't share it.
              refuse();
              if (failure != null) {
                throw FluxCclException.from(failure);
              }
              return null;
            });
  }

  private void refuse() {
    if (refused != null) {
      throw refused;
    }
  }

  private void compare(int rank, int peer, byte[] bytes) {
    List<String> theirs = new String(bytes, StandardCharsets.UTF_8).lines().toList();
    if (bytes.length > MOST_BYTES || theirs.size() != lines.size()) {
      throw new TransportFailure(
          peer, "rank " + peer + " told something that are no settings of collectives");
    }
    for (int i = 0; i < lines.size(); i++) {
      if (!lines.get(i).equals(theirs.get(i))) {
        throw new InvalidUsage(
            "collectives on rank "
                + rank
                + ": "
                + lines.get(i)
                + ", on rank "
                + peer
                + ": "
                + theirs.get(i)
                + "; give all ranks the same options, tuning file and class path");
      }
    }
  }
}
