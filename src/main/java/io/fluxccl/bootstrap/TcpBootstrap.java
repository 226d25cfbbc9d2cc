// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.trace.JobDump;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * The bootstrap of one group over TCP. The ranks of a first group find each other at the job's
 * address, where rank 0 listens, or at the process that created the {@link UniqueId}. Afterwards
 * they need neither: ranks connect to each other when they first need it.
 *
 * <p>Every connection begins with a handshake in which both sides prove that they know the job's
 * secret; without a secret only loopback addresses are used. Later frames are authenticated if
 * there is a secret, and encrypted only over TLS. All bootstraps of a JVM share one daemon thread,
 * which ends with the last of them.
 */
public final class TcpBootstrap extends CollectiveBootstrap {
  private static final long OPEN_SECONDS = 30;

  // Longer than a busy machine delays a thread.
  private static final long DUMP_GRACE_MILLIS = 5000;

  /** The roots that this process hosts for the ids it created. */
  private static final Map<UniqueId, Job> ROOTS = new ConcurrentHashMap<>();

  private final BootstrapOptions options;
  private final AtomicBoolean begun = new AtomicBoolean();
  private final CompletableFuture<Void> ready = NonblockingFuture.create();
  private final CompletableFuture<Void> newcomers = new CompletableFuture<>();
  private volatile Roster roster = Roster.NONE;

  // The fields below are accessed only on the event loop.
  Job job;
  Job root;
  private JobFile.Written entry;
  private CompletableFuture<Void> left;

  private TcpBootstrap(int rank, int nRanks, BootstrapOptions options) {
    super(options.name(), rank, nRanks, options.messageLimit());
    this.options = options;
  }

  /** Creates the bootstrap of a group that a job has formed; {@link #begin} follows. */
  TcpBootstrap(int rank, int nRanks, BootstrapOptions options, Job job) {
    this(rank, nRanks, options);
    this.begun.set(true);
    this.job = job;
  }

  /**
   * Creates a bootstrap that is not connected yet.
   *
   * @param rank this rank, from 0
   * @param nRanks how many there are; the same on all
   * @param options see {@link BootstrapOptions}
   * @return the bootstrap; close it
   * @throws InvalidUsage if {@code rank} or {@code nRanks} is out of range
   */
  public static TcpBootstrap create(int rank, int nRanks, BootstrapOptions options) {
    return new TcpBootstrap(rank, nRanks, options);
  }

  /**
   * Opens a root in this process and returns the id by which to join it. The root closes when the
   * ranks have formed their group, or when the last bootstrap of this process that joined it
   * closes; before that, also if no rank joins for ten minutes.
   *
   * @param options the interface to listen at, and the heartbeat interval
   * @return the id, to be carried to all ranks
   * @throws TransportFailure if the port can't be opened
   * @throws InvalidUsage on the thread of the bootstraps, which must not wait
   */
  public static UniqueId createUniqueId(BootstrapOptions options) {
    byte[] secret = SessionKey.nonce(UniqueId.SECRET_LENGTH);
    InetAddress address =
        options
            .networkInterface()
            .map(NetworkAddresses::ofInterface)
            .orElseGet(NetworkAddresses::reachable);
    JobPlace place = JobPlace.fixed(FluxCclException.NO_RANK, 0, List.of(), SessionKey.of(secret));
    Job root = new Job(place, options, Job.class);
    if (root.sockets.loop.inEventLoop()) {
      root.kill();
      throw new InvalidUsage(
          "createUniqueId waits for the port; call it on a thread that is not the bootstrap's");
    }
    try {
      InetSocketAddress at =
          root.openRoot(address).orTimeout(OPEN_SECONDS, TimeUnit.SECONDS).join();
      UniqueId id = UniqueId.of(at, secret);
      ROOTS.put(id, root);
      root.ended.thenRun(() -> ROOTS.remove(id));
      return id;
    } catch (RuntimeException e) {
      root.sockets.loop.execute(root::kill);
      throw FluxCclException.from(e);
    }
  }

  // ---- setting up ----

  /**
   * Joins the job of an id.
   *
   * @param id created by one process and given to all
   * @return completes when all ranks have joined; fails with {@link Timeout}, naming the ranks that
   *     did not, after the options' timeout
   */
  public CompletableFuture<Void> initialize(UniqueId id) {
    return begin(
        () -> {
          root = ROOTS.get(id);
          if (root != null) {
            root.use(this);
          }
          return JobPlace.fixed(rank(), nRanks(), id);
        });
  }

  /**
   * Joins the job at an address, or at one of several.
   *
   * @param address {@code ip:port} or {@code interface:ip:port}, the same on all ranks but for the
   *     interface, which is each rank's own; or a list of these, separated by commas
   * @return as {@link #initialize(UniqueId)}
   */
  public CompletableFuture<Void> initialize(String address) {
    return begin(() -> placeAt(address, SessionKey.of(options.secret(), "")));
  }

  private JobPlace placeAt(String address, SessionKey key) {
    return JobPlace.fixed(rank(), nRanks(), RootAddress.parseList(address), key);
  }

  /**
   * Joins the job that the environment describes.
   *
   * @param environment see {@link RankEnvironment}
   * @return as {@link #initialize(UniqueId)}; fails with {@link InvalidUsage} if the environment
   *     has no address of the job
   */
  public CompletableFuture<Void> initialize(RankEnvironment environment) {
    if (environment.uniqueId().isPresent()) {
      return initialize(environment.uniqueId().get());
    }
    return begin(
        () ->
            placeAt(
                environment.requireAddress(),
                SessionKey.of(
                    options.secret().or(environment::secret), environment.jobIdentity())));
  }

  private CompletableFuture<Void> begin(Supplier<JobPlace> place) {
    if (!begun.compareAndSet(false, true)) {
      return CompletableFuture.failedFuture(
          InvalidUsage.of("%s: initialize was called before; create another one", describe()));
    }
    operations.onLoop(() -> join(place));
    return ready.copy();
  }

  private void join(Supplier<JobPlace> place) {
    if (hasEnded()) {
      ready.completeExceptionally(refusal());
      return;
    }
    try {
      job = new Job(place.get(), options, this);
      job.join(Kind.FIXED, options.timeout(), this)
          .whenComplete((group, failure) -> operations.onLoop(() -> joined(failure)));
    } catch (RuntimeException e) {
      joined(e);
    }
  }

  // A failed set-up closes its sockets at once, though the bootstrap is closed only later.
  private void joined(Throwable failure) {
    if (failure == null) {
      ready.complete(null);
    } else {
      ready.completeExceptionally(FluxCclException.from(failure));
      leave();
    }
  }

  /** Begins the group: all its ranks have accepted this roster. On the event loop. */
  void begin(Roster formed) {
    roster = formed;
    initialized(formed.members());
    entry = JobFile.write(job.jobAddress(), job.sockets.key.of(LinkKind.INQUIRY), formed.members());
  }

  /**
   * Joins the group of the ranks that live, after this one has failed.
   *
   * @param limit the time for it
   * @return as {@link Job#join}; fails with {@link io.fluxccl.Aborted} if the others have continued
   *     without this rank
   */
  @Experimental
  public CompletableFuture<TcpBootstrap> shrink(Duration limit) {
    return CompletableFuture.supplyAsync(
            () -> job.join(Kind.SHRINKING, limit, null), operations::onLoop)
        .thenCompose(joining -> joining);
  }

  Roster roster() {
    return roster;
  }

  /** Returns the number of this group in its job, from 1. */
  @Experimental
  public long generation() {
    return roster.epoch();
  }

  /**
   * Returns, for each rank, the rank of the same process in the group before; -1 for a process that
   * was in none.
   */
  @Experimental
  public List<Integer> previousRanks() {
    return roster.previousRanks();
  }

  /**
   * Returns a new future that completes, on the bootstrap's thread, when processes wait for the
   * next group while this one has fewer ranks than it may.
   */
  @Experimental
  public CompletableFuture<Void> newcomers() {
    return newcomers.copy();
  }

  void newcomersWait() {
    newcomers.complete(null);
  }

  /** Sets the silent ranks. On the event loop. */
  void silent(List<Integer> ranks, long noLaterNanos) {
    liveness.set(
        ranks.stream()
            .filter(each -> each < nRanks() && each != rank() && !hasDeparted(each))
            .toList(),
        noLaterNanos);
  }

  // ---- dumps ----

  @Override
  public CompletableFuture<JobDump> dump(boolean all, Duration limit) {
    if (generation() == 0) {
      return CompletableFuture.failedFuture(
          InvalidUsage.of("dump: %s has not joined its job", describe()));
    }
    return CompletableFuture.supplyAsync(() -> askAll(all, limit), operations::onLoop)
        .thenCompose(Function.identity())
        // The bootstrap's thread keeps the limit itself, unless it has ended or is stuck.
        .orTimeout(limit.toMillis() + DUMP_GRACE_MILLIS, TimeUnit.MILLISECONDS)
        .exceptionallyCompose(
            failure ->
                CompletableFuture.failedFuture(
                    failure instanceof TimeoutException
                        ? lateDump(limit)
                        : FluxCclException.from(failure)));
  }

  /** Requests a snapshot from every rank, including this one, each over its own connection. */
  private CompletableFuture<JobDump> askAll(boolean all, Duration limit) {
    return new DumpClient(loop, job.sockets.channels, job.sockets.from, limit, all)
        .askAll(job.sockets.key.of(LinkKind.INQUIRY), roster.members());
  }

  private Timeout lateDump(Duration limit) {
    String text =
        "%s: dump: the bootstrap's thread has not answered %s ms after the limit of %s ms";
    return Timeout.of(rank(), text, describe(), DUMP_GRACE_MILLIS, limit.toMillis());
  }

  // ---- messages ----

  @Override
  CompletableFuture<Void> transmit(int peer, StreamKey key, byte[] message) {
    CompletableFuture<Void> done = new CompletableFuture<>();
    job.links.send(member(peer).address(), peer, new Data(roster.nonce(), key, message), done);
    return done;
  }

  /** Delivers a message of another rank. */
  void received(int peer, Data data) {
    if (peer != Roster.NEWCOMER) {
      arrived(data.key().from(peer), data.message());
    }
  }

  @Override
  boolean mayStillDeliver(int peer) {
    return job.links.isOpen(member(peer).address());
  }

  @Override
  void relay(FluxCclException reason) {
    if (generation() == 0) {
      ready.completeExceptionally(reason); // the others can't form the group without this rank
      leave();
    } else {
      job.failed(this, reason);
    }
  }

  @Override
  void onDeparture(int peer) {
    job.links.shut(
        member(peer).address(), RemoteFailure.of(peer, "%s: rank %s has left", describe(), peer));
  }

  // ---- leaving ----

  @Override
  CompletableFuture<Void> leave() {
    if (left == null) {
      liveness.set(List.of(), System.nanoTime());
      if (entry != null) {
        entry.close();
      }
      left =
          CompletableFuture.allOf(
              job == null ? CompletableFuture.completedFuture(null) : job.release(this),
              root == null ? CompletableFuture.completedFuture(null) : root.release(this));
    }
    return left;
  }
}
