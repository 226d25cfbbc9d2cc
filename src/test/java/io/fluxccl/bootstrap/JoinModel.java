// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Formed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Missed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.CastVote;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Ended;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.GroupFailed;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Joined;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.NewcomersWait;
import io.fluxccl.bootstrap.LocalProcess.JoinOutput.Send;
import io.fluxccl.bootstrap.Member.State;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Random;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.stream.IntStream;

/**
 * A simulated job: up to five machines, their processes, a network, and faults, all chosen by a
 * seed. Time is virtual. The run fails if the join protocol breaks one of its {@link JoinPromises}.
 */
final class JoinModel {
  private static final long MS = 1_000_000;
  private static final Duration INTERVAL = Duration.ofMillis(200);
  private static final Map<String, String> SETTINGS = Map.of("wire", "7", "FLUXCCL_CHECKS", "0");

  /** The time in which the faults that were planned before have happened. */
  private static final long LAST_FAULT_NANOS = 11_000 * MS;

  private record Event(long time, long number, Runnable action) {}

  private record Link(int from, int to) {}

  private final Random random;
  final JoinRules rules;
  private final PriorityQueue<Event> events =
      new PriorityQueue<>(Comparator.comparingLong(Event::time).thenComparingLong(Event::number));
  final List<Process> processes = new ArrayList<>();
  final Map<InetSocketAddress, Process> byAddress = new HashMap<>();
  final Map<InetSocketAddress, Process> listeners = new HashMap<>();
  final List<InetSocketAddress> jobAddresses = new ArrayList<>();
  private final Map<Link, Long> arrivals = new HashMap<>();
  private final Set<Link> broken = new HashSet<>();
  final Set<Link> cuts = new LinkedHashSet<>();
  private final Map<Link, Deque<Runnable>> held = new LinkedHashMap<>();
  private final Map<List<Object>, Ballot> ballots = new HashMap<>();
  private final int machines;
  final int size;
  final int least;
  final Duration replacementTimeout;
  final Duration limit;
  final boolean heals;
  private final boolean sharesBallots;
  private final boolean slow;
  private final boolean cruel;
  final long settledNanos;
  private final StringBuilder log;
  final JoinPromises promises = new JoinPromises(this);
  long now = MS;
  private long number;

  JoinModel(long seed, BiFunction<Duration, Duration, JoinRules> rules, boolean keepsLog) {
    random = new Random(seed);
    log = keepsLog ? new StringBuilder() : null;
    machines = 1 + random.nextInt(5);
    size = 1 + random.nextInt(6);
    heals = random.nextInt(3) > 0;
    least = random.nextBoolean() ? 1 : 1 + random.nextInt(size);
    replacementTimeout = Duration.ofMillis(random.nextBoolean() ? 0 : random.nextInt(3000));
    limit = Duration.ofMillis(random.nextInt(4) == 0 ? 4_000 : 25_000);
    sharesBallots = random.nextInt(4) > 0;
    slow = random.nextInt(4) == 0;
    cruel = random.nextInt(4) == 0;
    long liveness = random.nextBoolean() ? 1_200 : 2_000;
    this.rules = rules.apply(INTERVAL, Duration.ofMillis(liveness));
    settledNanos = now + (3_000 + random.nextInt(12_000)) * MS;
    jobAddresses.add(address(0, 1000));
    if (random.nextBoolean()) {
      jobAddresses.add(address(machines - 1, 1001));
    }
    for (int rank = 0; rank < size; rank++) {
      int machine = rank == 0 ? 0 : random.nextInt(machines);
      start(machine, rank, random.nextInt(300), true);
    }
    int spares = heals ? random.nextInt(3) : 0;
    for (int spare = 0; spare < spares; spare++) {
      start(random.nextInt(machines), random.nextInt(size), random.nextInt(9000), false);
    }
    planFaults();
  }

  private static InetSocketAddress address(int machine, int port) {
    try {
      return new InetSocketAddress(
          InetAddress.getByAddress(new byte[] {10, 0, 0, (byte) machine}), port);
    } catch (UnknownHostException e) {
      throw new IllegalStateException(e);
    }
  }

  private int machineOf(InetSocketAddress address) {
    return address.getAddress().getAddress()[3];
  }

  // ---- running ----

  void run() {
    long end = settledNanos + limit.toNanos() + 2 * promises.settleNanos();
    long check = settledNanos + LAST_FAULT_NANOS;
    while (!events.isEmpty() && events.peek().time <= end) {
      Event next = events.poll();
      now = Math.max(now, next.time);
      if (now > check) {
        if (promises.isQuiet()) {
          break;
        }
        check += 1_000 * MS;
      }
      next.action.run();
    }
    promises.checkEnd();
  }

  private void later(long delayNanos, Runnable action) {
    events.add(new Event(now + delayNanos, number++, action));
  }

  private void note(Object... words) {
    if (log != null) {
      log.append(String.format("%9.3f", now / 1e9));
      for (Object word : words) {
        log.append(' ').append(word);
      }
      log.append('\n');
    }
  }

  String history() {
    return String.valueOf(log);
  }

  // ---- faults ----

  private void planFaults() {
    int faults = random.nextInt(6);
    for (int fault = 0; fault < faults; fault++) {
      later(
          (random.nextInt(4) == 0 ? 0 : 500) * MS + random(settledNanos - now - 500 * MS),
          this::fault);
    }
    boolean thaws = random.nextBoolean();
    boolean mends = random.nextInt(4) > 0;
    later(
        settledNanos - now,
        () -> {
          note("--- no more faults");
          if (mends) {
            List.copyOf(cuts).forEach(this::mend);
          }
          if (thaws) {
            processes.forEach(Process::proceed);
          }
        });
  }

  private long random(long bound) {
    return (long) (random.nextDouble() * bound);
  }

  private void fault() {
    List<Process> live = processes.stream().filter(each -> each.run != Run.DEAD).toList();
    if (live.isEmpty()) {
      return;
    }
    Process victim = live.get(random.nextInt(live.size()));
    boolean first = random.nextInt(3) == 0;
    if (first) {
      victim =
          live.stream()
              .filter(each -> each.member.roster().rankOf(each.address) == 0)
              .findFirst()
              .orElse(victim);
    }
    switch (random.nextInt(10)) {
      case 0, 1, 2 -> {
        victim.kill();
        if (heals && random.nextInt(3) > 0) {
          start(
              random.nextInt(3) == 0 ? random.nextInt(machines) : victim.machine,
              victim.rank,
              random.nextInt(4000),
              false);
        }
        if (random.nextInt(3) == 0) {
          live.get(random.nextInt(live.size())).kill();
        }
      }
      case 3, 4, 5 -> {
        victim.stop();
        Process stopped = victim;
        if (random.nextInt(3) > 0) {
          later((100 + random.nextInt(random.nextBoolean() ? 1500 : 9000)) * MS, stopped::proceed);
        }
        if (random.nextInt(4) == 0) {
          later((1000 + random.nextInt(4000)) * MS, stopped::kill);
        }
      }
      case 6, 7 -> {
        int one = random.nextInt(machines);
        boolean isolates = random.nextBoolean();
        int other = random.nextInt(machines);
        long time = (200 + random.nextInt(random.nextBoolean() ? 1500 : 9000)) * MS;
        for (int each = 0; each < machines; each++) {
          if (each != one && (isolates || each == other)) {
            cut(new Link(Math.min(one, each), Math.max(one, each)), time);
          }
        }
      }
      case 8 -> halve(victim);
      default -> victim.leave();
    }
  }

  /** A coordinator dies, is stopped or is cut off in the middle of its messages. */
  private void hurt(Process coordinator) {
    switch (random.nextInt(3)) {
      case 0 -> coordinator.kill();
      case 1 -> {
        coordinator.stop();
        later((1500 + random.nextInt(3000)) * MS, coordinator::proceed);
      }
      default -> isolate(coordinator.machine, (1500 + random.nextInt(5000)) * MS);
    }
  }

  private void isolate(int machine, long time) {
    for (int other = 0; other < machines; other++) {
      if (other != machine) {
        cut(new Link(Math.min(machine, other), Math.max(machine, other)), time);
      }
    }
  }

  /** Two halves lose each other; later a process dies, and its machine returns to both. */
  private void halve(Process victim) {
    for (int a = 0; a < machines; a++) {
      for (int b = a + 1; b < machines; b++) {
        if (a % 2 != b % 2) {
          cut(new Link(a, b), (1000 + random.nextInt(9000)) * MS);
        }
      }
    }
    if (random.nextBoolean()) {
      later(
          (2_500 + random.nextInt(2_000)) * MS,
          () -> {
            victim.kill();
            List.copyOf(cuts).stream()
                .filter(each -> each.from == victim.machine || each.to == victim.machine)
                .forEach(this::mend);
          });
    }
  }

  private void cut(Link link, long time) {
    note("cut", link);
    cuts.add(link);
    if (random.nextInt(5) > 0) {
      later(time, () -> mend(link));
    }
    // An operation between two ranks that lose each other ends by its own limit.
    later(
        2_500 * MS,
        () ->
            processes.stream()
                .filter(each -> each.isRunning() && each.member.state() == State.MEMBER)
                .filter(each -> each.machine == link.from && cuts.contains(link))
                .findFirst()
                .ifPresent(each -> each.timeOut(link.to)));
  }

  private void mend(Link link) {
    if (cuts.remove(link)) {
      note("mend", link);
      held.entrySet().stream()
          .filter(
              each ->
                  isLink(
                      link,
                      processes.get(each.getKey().from).machine,
                      processes.get(each.getKey().to).machine))
          .forEach(each -> drain(each.getKey(), each.getValue()));
    }
  }

  private void drain(Link connection, Deque<Runnable> messages) {
    while (!messages.isEmpty()) {
      arrive(connection, messages.poll());
    }
  }

  private static boolean isLink(Link link, int a, int b) {
    return link.from == Math.min(a, b) && link.to == Math.max(a, b);
  }

  boolean isCut(int a, int b) {
    return cuts.contains(new Link(Math.min(a, b), Math.max(a, b)));
  }

  // ---- the network ----

  private void send(Process from, InetSocketAddress to, JoinMessage message) {
    if (message instanceof Propose propose) {
      promises.proposed(from, propose);
    } else if (message instanceof Formed group) {
      promises.checkUnique(group.roster());
    }
    boolean decides = message instanceof Propose || message instanceof Formed;
    if (cruel && decides && now < settledNanos && random.nextInt(10) == 0) {
      hurt(from);
    }
    Process target = byAddress.getOrDefault(to, listeners.get(to));
    int machine = machineOf(to);
    if (target == null || target.run == Run.DEAD) {
      if (!isCut(from.machine, machine)) {
        later(delay(), () -> from.give(() -> from.refused(to)));
      }
      return;
    }
    Link connection = new Link(from.id, target.id);
    from.connected.add(target);
    target.connected.add(from);
    Runnable delivery = () -> target.give(() -> target.receive(from, message));
    if (isCut(from.machine, machine)) {
      hold(connection, delivery);
    } else {
      arrive(connection, delivery);
    }
  }

  /** Keeps a message until the network is repaired, or loses it with its connection. */
  private void hold(Link connection, Runnable delivery) {
    if (connection.from % 3 != connection.to % 3) {
      held.computeIfAbsent(connection, each -> new ArrayDeque<>()).add(delivery);
    }
  }

  private void arrive(Link connection, Runnable delivery) {
    long time = now + (connection.from == connection.to ? 0 : delay());
    time = Math.max(time, arrivals.getOrDefault(connection, 0L) + 1);
    arrivals.put(connection, time);
    later(
        time - now,
        () -> {
          Process from = processes.get(connection.from);
          boolean breaks = from.run == Run.DEAD && random.nextInt(3) == 0;
          if (breaks || broken.contains(connection)) {
            broken.add(connection); // a process dies before its messages are sent
          } else if (isCut(from.machine, processes.get(connection.to).machine)) {
            hold(connection, delivery);
          } else {
            delivery.run();
          }
        });
  }

  private long delay() {
    return random.nextInt(slow ? 20 : 400) == 0
        ? random(600 * MS)
        : MS / 20 + random((slow ? 40 : 2) * MS);
  }

  // ---- processes ----

  enum Run {
    RUNNING,
    STOPPED,
    DEAD
  }

  private void start(int machine, int rank, int delayMillis, boolean first) {
    later(delayMillis * MS, () -> new Process(machine, rank, first).begin());
  }

  /** One process of the job, and its machine's part of a driver. */
  final class Process {
    final int id = processes.size();
    final int machine;
    final int rank;
    final InetSocketAddress address;
    final LocalProcess process;
    final Member member;
    private final JoinRequest first;
    final boolean isWrong;
    private final Set<Process> connected = new LinkedHashSet<>();
    private final Deque<Runnable> inbox = new ArrayDeque<>();
    private final List<JoinOutput> unsent = new ArrayList<>();
    final Set<Nonce> joined = new HashSet<>();

    /** For each group, when this process stopped to be a running member of it. */
    private final Map<Nonce, Long> outNanos = new HashMap<>();

    Run run = Run.RUNNING;
    boolean ended;
    boolean wasStopped;
    boolean knowsGroup;
    long beganNanos;
    long joinedNanos;
    long groupNanos;
    private long ranNanos;
    long lastEpoch;
    long missedEpoch;
    long knownEpoch;
    private long timer = Long.MAX_VALUE;
    private long readFilesNanos;

    Process(int machine, int rank, boolean isFirst) {
      this.machine = machine;
      this.rank = rank;
      this.address = address(machine, 2000 + id);
      long host = sharesBallots ? machine : 100 + id;
      isWrong = !isFirst && random.nextInt(8) == 0;
      Contact self = new Contact(address, id, host, machine, id, "p" + id);
      process = new LocalProcess(self, rules, this::nonce);
      member = new Member(process);
      first =
          new JoinRequest(
              heals ? Kind.HEALING : Kind.FIXED,
              rank,
              size,
              least,
              replacementTimeout,
              limit,
              isWrong ? Map.of("wire", "7", "FLUXCCL_CHECKS", "1") : SETTINGS);
      processes.add(this);
      byAddress.put(address, this);
    }

    private Nonce nonce() {
      return new Nonce(random.nextLong(), random.nextLong());
    }

    void begin() {
      process.jobAddresses.addAll(jobAddresses);
      readJobFiles();
      note(this, "starts as rank", rank, "on", machine, isWrong ? "wrong" : "");
      join(first);
      listen();
    }

    /** Listens at a job's address of this machine, if no process does. */
    private void listen() {
      if (isWrong || (rank > 0 && member.roster().isEmpty())) {
        return; // only rank 0 forms a job; members introduce newcomers to it
      }
      for (InetSocketAddress each : jobAddresses) {
        Process other = listeners.get(each);
        if (machineOf(each) == machine && (other == null || other.run == Run.DEAD)) {
          listeners.put(each, this);
          if (rank == 0) {
            obey(member.beginRoot(now));
          }
        }
      }
    }

    private void readJobFiles() {
      if (now >= readFilesNanos && member.roster().isEmpty()) {
        readFilesNanos = now + 1000 * MS;
        processes.stream()
            .filter(each -> each != this && each.machine == machine && each.run != Run.DEAD)
            .filter(each -> !each.joined.isEmpty())
            .forEach(each -> process.entries.add(each.address));
      }
    }

    private void join(JoinRequest request) {
      beganNanos = now;
      joinedNanos = now;
      obey(member.join(request, now));
    }

    boolean isRunning() {
      return run == Run.RUNNING && !ended;
    }

    /** Returns whether this process runs, or ran at some time of a window before now. */
    boolean ran(long window) {
      return isRunning() || now - ranNanos < window;
    }

    /** Runs an event now, or when this process continues. */
    void give(Runnable event) {
      if (run == Run.RUNNING) {
        event.run();
      } else if (run == Run.STOPPED) {
        inbox.add(event);
      }
    }

    void kill() {
      if (run == Run.DEAD) {
        return;
      }
      note(this, "dies");
      out();
      run = Run.DEAD;
      for (Process each : connected) {
        if (each != this && !isCut(machine, each.machine)) {
          later(delay(), () -> each.give(() -> each.refused(address)));
        }
      }
    }

    void stop() {
      if (run == Run.RUNNING) {
        note(this, "is stopped");
        out();
        run = Run.STOPPED;
        wasStopped = true;
      }
    }

    void proceed() {
      if (run != Run.STOPPED) {
        return;
      }
      note(this, "continues");
      run = Run.RUNNING;
      beganNanos = now;
      joinedNanos = now;
      List<JoinOutput> rest = List.copyOf(unsent);
      unsent.clear();
      obey(rest);
      if (random.nextBoolean()) {
        tick();
      }
      while (run == Run.RUNNING && !inbox.isEmpty()) {
        inbox.poll().run();
      }
      timer = Long.MAX_VALUE;
      setTimer();
    }

    void leave() {
      if (isRunning() && member.state() == State.MEMBER) {
        note(this, "leaves");
        obey(member.leave(now));
        exit();
      }
    }

    void timeOut(int otherMachine) {
      Roster roster = member.roster();
      IntStream.range(0, roster.size())
          .filter(each -> machineOf(roster.address(each)) == otherMachine)
          .findFirst()
          .ifPresent(
              each -> obey(member.fail(new Failure(ErrorCode.TIMEOUT, each, "operation"), now)));
    }

    private void out() {
      ranNanos = isRunning() ? now : ranNanos;
      outNanos.put(member.roster().nonce(), now);
    }

    /** Returns how long a member of a group was not in it, or the group's age if it never was. */
    long missesNanos(Process other) {
      Nonce group = member.roster().nonce();
      return now - Math.max(groupNanos, other.outNanos.getOrDefault(group, groupNanos));
    }

    /** Returns the ranks of this group that run no member of it, and have not left it. */
    List<Process> missing() {
      Roster group = member.roster();
      return group.addresses().stream()
          .map(byAddress::get)
          .filter(each -> !each.isRunning() || !each.member.roster().equals(group))
          .filter(each -> each.run != Run.DEAD || !process.left.contains(each.address))
          .toList();
    }

    /** Returns whether this process has been in its group for a time, and the group is whole. */
    boolean isSettled() {
      return isRunning()
          && member.state() == State.MEMBER
          && now - groupNanos > JoinPromises.NOTICE_NANOS
          && missing().isEmpty();
    }

    /** Returns whether this newcomer waits for a running group. */
    boolean isSpare() {
      return isRunning()
          && member.roster().isEmpty()
          && member.state() == State.WAITING
          && now - beganNanos < rules.leaseNanos();
    }

    private void exit() {
      out();
      ended = true;
      later(random(300 * MS), this::kill);
    }

    private void refused(InetSocketAddress peer) {
      obey(member.refused(peer, now));
    }

    private void receive(Process from, JoinMessage message) {
      if (message instanceof Missed || (message instanceof Waiting waiting && waiting.standby())) {
        beganNanos = now;
      }
      if (message instanceof Missed news) {
        joinedNanos = now;
        missedEpoch = Math.max(missedEpoch, news.epoch());
        knownEpoch = Math.max(knownEpoch, missedEpoch);
      }
      if (message instanceof Waiting waiting) {
        knowsGroup |= waiting.term().epoch() > 1;
        knownEpoch = Math.max(knownEpoch, waiting.term().epoch() - 1);
      }
      if (log != null && !(message instanceof JoinMessage.Beat)) {
        note(this, member.state(), "<-", from, message);
      }
      obey(member.received(from.address, message, now));
    }

    private void tick() {
      if (!ended) {
        readJobFiles();
        listen();
        obey(member.tick(now));
        promises.checkLimit(this);
      }
    }

    private void setTimer() {
      long wake = Math.max(member.wakeNanos(), now + MS / 100);
      if (!ended && wake < timer) {
        timer = wake;
        later(
            wake - now,
            () -> {
              if (timer == wake && run == Run.RUNNING) {
                timer = Long.MAX_VALUE;
                tick();
                setTimer();
              }
            });
      }
    }

    private void obey(List<JoinOutput> outputs) {
      for (JoinOutput output : outputs) {
        if (run != Run.RUNNING) { // it was stopped or killed between two messages
          unsent.add(output);
          continue;
        }
        if (output instanceof Send send) {
          send(this, send.to(), send.message());
        } else if (output instanceof CastVote vote) {
          later(random(2 * MS), () -> give(() -> vote(vote)));
        } else if (output instanceof Joined group) {
          joined(group);
        } else if (output instanceof GroupFailed failed) {
          note(this, "group failed:", failed.failure().message());
          out();
          long delay = random.nextInt(4) == 0 ? random((heals ? 1000 : 2500) * MS) : 0;
          later(delay, () -> give(this::joinNext));
        } else if (output instanceof Ended end) {
          ended(end.failure());
        } else if (output instanceof NewcomersWait) {
          later(random(1000 * MS), () -> give(this::renew));
        }
      }
      setTimer();
    }

    private void joinNext() {
      if (member.state() == State.IDLE) {
        note(this, "joins the next generation");
        join(heals ? first : shrinking());
      }
    }

    private JoinRequest shrinking() {
      return new JoinRequest(
          Kind.SHRINKING,
          member.roster().rankOf(address),
          member.roster().size(),
          1,
          Duration.ZERO,
          limit,
          SETTINGS);
    }

    private void renew() {
      if (member.state() == State.MEMBER) {
        obey(member.fail(new Failure(ErrorCode.ABORTED, 0, "renewed"), now));
      }
    }

    private void vote(CastVote cast) {
      List<Object> key = List.of(process.self.host(), cast.base());
      Ballot before = ballots.getOrDefault(key, Ballot.EMPTY);
      Ballot after = rules.vote(before, cast.request());
      promises.voted(this, before, after);
      ballots.put(key, after);
      later(random(MS), () -> give(() -> obey(member.voted(cast.base(), after, now))));
    }

    private void joined(Joined group) {
      Roster roster = group.roster();
      note(this, "joined", roster);
      promises.joined(this, group);
      groupNanos = now;
      lastEpoch = roster.epoch();
      joined.add(roster.nonce());
    }

    private void ended(Failure failure) {
      note(this, "ended:", failure.code(), failure.rank(), failure.message());
      promises.ended(this, failure);
      out();
      ended = true;
      if (random.nextInt(4) > 0) {
        exit();
      }
    }

    @Override
    public String toString() {
      return "p" + id;
    }
  }

  Map<String, Object> shape() {
    Map<String, Object> shape = new LinkedHashMap<>();
    shape.put("machines", machines);
    shape.put("size", size);
    shape.put("least", least);
    shape.put("heals", heals);
    shape.put("sharesBallots", sharesBallots);
    shape.put("replacementTimeout", replacementTimeout);
    shape.put("limit", limit);
    return shape;
  }
}
