// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.trace.JobDump;
import io.fluxccl.trace.Snapshot;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import reactor.core.Disposable;
import reactor.core.Disposables;

/**
 * The bootstrap of ranks of one JVM, which exchange messages through memory: for tests, and for
 * several devices driven by one process. It behaves as {@link TcpBootstrap} does, without sockets,
 * on the same thread. Every rank has to be closed.
 */
public final class LocalBootstrap extends CollectiveBootstrap {
  private static final int MESSAGE_LIMIT = BootstrapOptions.DEFAULT_MESSAGE_LIMIT;

  /** The time after which other ranks notice a silent rank, as with {@link TcpBootstrap}. */
  private static final Duration SILENCE = Duration.ofSeconds(1);

  // By rank; filled before a caller sees any of them, and never changed.
  final List<LocalBootstrap> group;
  boolean gone;

  // The timers of this rank's silence. Accessed only on the event loop.
  private Disposable silencing = Disposables.disposed();

  private LocalBootstrap(
      String name, int rank, int nRanks, List<LocalBootstrap> group, int messageLimit) {
    super(name, rank, nRanks, messageLimit);
    this.group = group;
  }

  /**
   * Creates all ranks of a job, connected and ready.
   *
   * @param nRanks how many
   * @return the bootstraps, by rank
   */
  public static List<LocalBootstrap> group(int nRanks) {
    return group("", nRanks, MESSAGE_LIMIT);
  }

  /**
   * Creates all ranks of a job that has a name.
   *
   * @param name for messages
   * @param nRanks how many
   * @return the bootstraps, by rank
   */
  public static List<LocalBootstrap> group(String name, int nRanks) {
    return group(name, nRanks, MESSAGE_LIMIT);
  }

  /**
   * Creates ranks that pretend to be on several hosts: operations that need a shared host are
   * refused between them.
   *
   * @param hostHashes the host of each rank, by rank
   * @return the ranks
   */
  public static List<LocalBootstrap> group(List<Long> hostHashes) {
    if (hostHashes.isEmpty()) {
      throw new InvalidUsage("no hosts given; name one for each rank");
    }
    return group("", hostHashes, MESSAGE_LIMIT);
  }

  static List<LocalBootstrap> group(String name, int nRanks, int messageLimit) {
    if (nRanks < 1) {
      throw InvalidUsage.of("nRanks=%s; give 1 or more", nRanks);
    }
    long hostHash = HostIdentity.current().hostHash();
    return group(name, Collections.nCopies(nRanks, hostHash), messageLimit);
  }

  private static List<LocalBootstrap> group(String name, List<Long> hostHashes, int messageLimit) {
    long processHash = HostIdentity.current().processHash();
    int nRanks = hostHashes.size();
    List<Contact> members = new ArrayList<>();
    for (long hostHash : hostHashes) {
      InetSocketAddress nowhere = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
      members.add(new Contact(nowhere, 0, hostHash, hostHash, processHash, ""));
    }
    List<LocalBootstrap> group = new ArrayList<>();
    for (int rank = 0; rank < nRanks; rank++) {
      LocalBootstrap each = new LocalBootstrap(name, rank, nRanks, group, messageLimit);
      each.initialized(members);
      group.add(each);
    }
    return Collections.unmodifiableList(group);
  }

  /**
   * Makes this rank silent, as if its process were stopped, to test how the other ranks react. They
   * notice after a second, by Reactor's virtual time if a test has installed it. Nothing else
   * changes: messages that this rank sends still arrive.
   *
   * @param livenessTimeout how long after that the job fails, as {@link
   *     BootstrapOptions#livenessTimeout}; zero: it does not
   */
  public void stopAnswering(Duration livenessTimeout) {
    Deadline noticed = Deadline.after(SILENCE);
    Deadline over =
        livenessTimeout.isZero() ? Deadline.never() : Deadline.after(SILENCE.plus(livenessTimeout));
    operations.onLoop(
        () -> {
          if (gone) {
            return;
          }
          silencing.dispose();
          silencing =
              Disposables.composite(
                  noticed.whenPassed(loop, () -> tellOthers(true)),
                  over.whenPassed(loop, () -> fail(silentFor(livenessTimeout))));
        });
  }

  private Timeout silentFor(Duration limit) {
    String text = "rank %s has answered no heartbeat for %s ms";
    return Timeout.of(rank(), text, rank(), limit.toMillis());
  }

  /** Makes this rank answer heartbeats again. */
  public void answerAgain() {
    operations.onLoop(
        () -> {
          silencing.dispose();
          tellOthers(false);
        });
  }

  private void tellOthers(boolean silent) {
    for (LocalBootstrap each : group) {
      if (each != this && !each.gone) {
        Set<Integer> ranks = new TreeSet<>(each.silentRanks());
        if (silent ? ranks.add(rank()) : ranks.remove(rank())) {
          each.liveness.set(List.copyOf(ranks), System.nanoTime() - SILENCE.toNanos());
        }
      }
    }
  }

  @Override
  CompletableFuture<Void> transmit(int peer, StreamKey key, byte[] message) {
    LocalBootstrap to = group.get(peer);
    byte[] copy = message.clone();
    // A separate task, so that messages around a ring of ranks cause no deep recursion.
    loop.execute(
        () -> {
          if (!to.gone) {
            to.arrived(key, copy);
          }
        });
    return CompletableFuture.completedFuture(null);
  }

  @Override
  void relay(FluxCclException reason) {
    Failure news = Failure.of(reason);
    for (LocalBootstrap each : group) {
      if (each != this && !each.gone) {
        loop.execute(() -> each.fail(news.toException()));
      }
    }
  }

  @Override
  CompletableFuture<Void> leave() {
    if (!gone) {
      gone = true;
      silencing.dispose();
      tellOthers(false);
      for (LocalBootstrap each : group) {
        // After all messages that were transmitted before.
        loop.execute(() -> each.departed(rank()));
      }
    }
    return CompletableFuture.completedFuture(null);
  }

  @Override
  public CompletableFuture<JobDump> dump(boolean all, Duration limit) {
    return CompletableFuture.supplyAsync(
        () -> {
          long now = System.nanoTime();
          List<Snapshot> answers = new ArrayList<>();
          for (LocalBootstrap each : group) {
            answers.add(
                each.gone
                    ? JobDump.noAnswer(each.rank(), "it has left")
                    : JobDump.answer(each.rank(), each.reports.make(all), now, now));
          }
          return new JobDump(answers);
        },
        operations::onLoop);
  }
}
