// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.bootstrap.BootstrapFrame.DumpMembers;
import io.fluxccl.bootstrap.BootstrapFrame.DumpMissing;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.tls.Tls;
import io.fluxccl.trace.JobDump;
import io.netty.channel.group.DefaultChannelGroup;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Requests a dump of a job, from a process that is none of its ranks. It finds the ranks by their
 * process on this machine, or by the job's address and secret. It asks each rank separately, so a
 * stopped rank does not delay the answers of the others.
 */
public final class JobDumpClient {
  private final boolean all;
  private final Duration limit;

  /**
   * Creates a client.
   *
   * @param all whether to ask for all calls that ranks keep
   * @param limit how long to wait for ranks that don't answer
   */
  public JobDumpClient(boolean all, Duration limit) {
    this.all = all;
    this.limit = limit;
  }

  /**
   * Requests a dump of each job in which a process of this machine has a rank. May block.
   *
   * @param process its id, or that of a process that has started ranks
   * @return one dump for each of its jobs
   * @throws InvalidUsage if no rank of that process is known
   */
  public List<CompletableFuture<JobDump>> ofProcess(long process) {
    try {
      Stream<ProcessHandle> started =
          ProcessHandle.of(process).stream().flatMap(ProcessHandle::descendants);
      Set<Long> family = started.map(ProcessHandle::pid).collect(Collectors.toSet());
      family.add(process);
      String id = Long.toString(process);
      List<JobFile> entries = JobFile.all(id, family::contains);
      if (entries.isEmpty()) {
        throw InvalidUsage.of(
            "no rank of process %d is known in %s; give the process of a rank that has joined its"
                + " job on this machine, or the job's address",
            process, JobFile.folder(id));
      }
      Map<InetSocketAddress, JobFile> jobs = new HashMap<>();
      entries.forEach(each -> jobs.putIfAbsent(each.root(), each));
      return jobs.values().stream().map(this::ask).toList();
    } catch (IOException e) {
      throw new InvalidUsage("process " + process + " can't be looked up: " + e, e);
    }
  }

  /**
   * Requests a dump of the job at an address.
   *
   * @param address as in FLUXCCL_ADDR
   * @param secret the job's, if it has one
   * @return the dump; fails with {@link Timeout} if its root does not answer, and with {@link
   *     InvalidUsage} while ranks are missing
   */
  public CompletableFuture<JobDump> ofAddress(String address, Optional<JobSecret> secret) {
    RootAddress where = RootAddress.parseList(address).get(0);
    SessionKey key = SessionKey.of(secret, "").of(LinkKind.INQUIRY);
    return CompletableFuture.supplyAsync(where::resolve, BlockingTasks.EXECUTOR)
        .thenCompose(ip -> ofRoot(new InetSocketAddress(ip, where.port()), key));
  }

  private CompletableFuture<JobDump> ofRoot(InetSocketAddress root, SessionKey key) {
    // Half of the limit for the root, which may be stopped; the ranks then have the full limit.
    return with(
            limit.dividedBy(2), client -> client.ask(key, root, FluxCclException.NO_RANK).answer)
        .handle((frame, failure) -> next(root, key, frame, failure))
        .thenCompose(Function.identity());
  }

  private CompletableFuture<JobDump> next(
      InetSocketAddress root, SessionKey key, BootstrapFrame frame, Throwable failure) {
    if (frame instanceof DumpMembers group) {
      return with(limit, client -> client.askAll(key, group.roster().members()));
    }
    if (frame instanceof DumpMissing waiting) {
      return CompletableFuture.failedFuture(
          Timeout.of(
              waiting.missing().isEmpty() ? FluxCclException.NO_RANK : waiting.missing().get(0),
              "the job at %s is being set up; missing ranks: %s",
              root,
              PendingOperations.describe(waiting.missing())));
    }
    FluxCclException reason = FluxCclException.from(failure);
    if (reason instanceof InvalidUsage) {
      return CompletableFuture.failedFuture(reason);
    }
    Timeout noRoot =
        Timeout.of(
            FluxCclException.NO_RANK,
            "the root gives no answer: %s; are %s and %s the job's? On the host of a rank, give"
                + " that rank's process id instead",
            reason.getMessage(),
            JobSecret.VARIABLE,
            Tls.VARIABLE);
    // The root's process may be stopped; a file of a rank on this machine has the addresses of all.
    return JobFile.ofJob(Set.of(root)).stream()
        .findFirst()
        .map(this::ask)
        .orElseGet(() -> CompletableFuture.failedFuture(noRoot));
  }

  private CompletableFuture<JobDump> ask(JobFile entry) {
    return with(limit, client -> client.askAll(entry.key(), entry.members()));
  }

  /** Runs a request on the bootstraps' thread, which stays alive until the answer. */
  private <T> CompletableFuture<T> with(
      Duration time, Function<DumpClient, CompletableFuture<T>> query) {
    SharedEventLoop thread = SharedEventLoop.acquire();
    DumpClient client =
        new DumpClient(
            thread.loop(), new DefaultChannelGroup(thread.loop(), true), null, time, all);
    return CompletableFuture.supplyAsync(() -> query.apply(client), thread.loop())
        .thenCompose(Function.identity())
        .whenComplete((answer, failure) -> thread.leave());
  }
}
