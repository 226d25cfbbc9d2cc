package io.fluxccl.transport.ethernet;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.SpinPolicy;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.netplugin.tcp.PortRange;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.MemoryHandle;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoop;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.util.concurrent.FastThreadLocalThread;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * TCP as one communicator uses it: one listening socket, and one event loop on a daemon thread of
 * its own that serves all its connections.
 */
final class EthernetContext implements TransportContext {
  private static final Duration BIND_TIMEOUT = Duration.ofSeconds(10);

  private final TransportEnvironment environment;
  private final NetworkStack stack;
  private final EventLoopGroup group;
  private final EventLoop loop;
  private final SecureRandom random = new SecureRandom();
  private final MemoryTable memories = new MemoryTable(random);
  private final WindowPool pool = new WindowPool();
  private final StagingPolicy stagingPolicy;

  /** Null where sockets reach all memory that there may be. */
  private final Staging staging;

  /** Ends whose peer has not come yet. */
  private final List<EthernetConnection> expected = new CopyOnWriteArrayList<>();

  private final Set<EthernetConnection> connections = ConcurrentHashMap.newKeySet();
  private final Set<Channel> sockets = ConcurrentHashMap.newKeySet();
  private final AtomicBoolean closed = new AtomicBoolean();
  private Channel listener;

  private EthernetContext(
      TransportEnvironment environment, NetworkStack stack, StagingPolicy stagingPolicy) {
    this.environment = environment;
    this.stack = stack;
    this.stagingPolicy = stagingPolicy;
    String name = "fluxccl-ethernet-rank" + environment.rank();
    this.group =
        new MultiThreadIoEventLoopGroup(
            1,
            task -> {
              Thread thread = new FastThreadLocalThread(task, name);
              thread.setDaemon(true);
              return thread;
            },
            stack.ioHandlerFactory());
    this.loop = group.next();
    this.staging = openStaging();
    // Kernels that wait must leave the event loop a core, or yield.
    SpinPolicy.enter();
  }

  /**
   * Opens a context and its listener.
   *
   * @throws TransportFailure if there is no port to listen on
   */
  static EthernetContext open(
      TransportEnvironment environment,
      NetworkStack stack,
      PortRange ports,
      StagingPolicy stagingPolicy) {
    EthernetContext context = new EthernetContext(environment, stack, stagingPolicy);
    try {
      context.listen(ports);
      return context;
    } catch (RuntimeException e) {
      context.close();
      throw e;
    }
  }

  private Staging openStaging() {
    boolean needed =
        stagingPolicy != StagingPolicy.WHERE_NEEDED
            || environment.device().kind() != DeviceKind.HOST;
    try {
      return needed ? new Staging(environment.device(), loop) : null;
    } catch (RuntimeException e) {
      group.shutdownGracefully(0, 1, TimeUnit.SECONDS);
      throw e;
    }
  }

  private void listen(PortRange ports) {
    ServerBootstrap bootstrap =
        new ServerBootstrap()
            .group(loop)
            .channel(stack.serverChannel())
            .childHandler(
                new ChannelInitializer<Channel>() {
                  @Override
                  protected void initChannel(Channel channel) {
                    initialize(channel, new InboundReader(EthernetContext.this));
                  }
                });
    Throwable refusal = null;
    for (int port = ports.low(); port <= ports.high() && listener == null; port++) {
      ChannelFuture bound = bootstrap.bind(new InetSocketAddress(environment.hostAddress(), port));
      if (!bound.awaitUninterruptibly(BIND_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS)) {
        bound.channel().close();
        break;
      }
      if (bound.isSuccess()) {
        listener = bound.channel();
        sockets.add(listener);
      }
      refusal = bound.cause();
    }
    if (listener == null) {
      throw new TransportFailure(
          rank(),
          String.format(
              "rank %s can't listen at %s on a port of %s-%s; check that the address is"
                  + " this host's, and widen %s",
              rank(),
              environment.hostAddress().getHostAddress(),
              ports.low(),
              ports.high(),
              EthernetTransport.PORT_RANGE_VARIABLE),
          refusal);
    }
  }

  @Override
  public Transport transport() {
    return Transport.ETHERNET;
  }

  @Override
  public MemoryHandle register(DeviceBuffer buffer) {
    requireOpen();
    if (!stagingPolicy.stages(buffer)) {
      return memories.add(buffer, null);
    }
    if (staging == null) {
      throw InvalidUsage.of(
          "ETHERNET of a communicator on the HOST device reaches memory of HOST devices"
              + " only, and"
              + " this buffer is on a %s device; copy it to host"
              + " memory, or make a communicator on that device",
          buffer.device().kind());
    }
    staging.refuseOthers(buffer);
    return memories.add(buffer, staging);
  }

  @Override
  public MemoryHandle open(byte[] wire, MemoryOrigin origin) {
    requireOpen();
    return EthernetMemory.decode(wire, origin.rank(), origin.size());
  }

  @Override
  public Endpoint createEndpoint(int remoteRank, int tag, EndpointConfig config) {
    requireOpen();
    if (remoteRank < 0 || remoteRank >= environment.nRanks()) {
      throw new InvalidUsage(
          "remoteRank=" + remoteRank + "; give 0 to " + (environment.nRanks() - 1));
    }
    byte[] token = new byte[EndpointWire.TOKEN_LENGTH];
    random.nextBytes(token);
    EthernetConnection connection = new EthernetConnection(this, remoteRank, tag, token);
    connections.add(connection);
    expected.add(connection);
    if (closed.get()) {
      connection.close();
    }
    return new EthernetEndpoint(
        connection, new EndpointWire((InetSocketAddress) listener.localAddress(), token));
  }

  @Override
  public void close() {
    if (!closed.compareAndSet(false, true)) {
      return;
    }
    SpinPolicy.exit();
    List<AutoCloseable> steps = new ArrayList<>(connections);
    memories.all().forEach(memory -> steps.add(memory::closeWithContext));
    steps.add(this::closeSockets);
    if (staging != null) {
      steps.add(() -> later(staging::close));
    }
    try {
      // What can't be closed keeps nothing else from it.
      Closing.all(steps);
    } finally {
      // The closes above are queued before this, and what is queued still runs.
      group.shutdownGracefully(0, 1, TimeUnit.SECONDS);
    }
  }

  private void closeSockets() {
    if (listener != null) {
      listener.close();
    }
    // Also sockets whose hello is still to come, and those that wait for their peer to hang up.
    onLoop(() -> sockets.forEach(Channel::close));
  }

  int rank() {
    return environment.rank();
  }

  /** What copies memory that sockets can't reach; null where there is no such memory. */
  Staging staging() {
    return staging;
  }

  NetworkStack stack() {
    return stack;
  }

  EventLoop loop() {
    return loop;
  }

  MemoryTable memories() {
    return memories;
  }

  WindowPool pool() {
    return pool;
  }

  InetSocketAddress listenAddress() {
    return (InetSocketAddress) listener.localAddress();
  }

  /** How many sockets are open, the listener included. For tests. */
  int openSockets() {
    return sockets.size();
  }

  /** Closes all sockets without a word, as the death of this process would. For tests. */
  void sever() {
    sockets.forEach(Channel::close);
  }

  /** Gives a new channel its handler, and lets the handler say where bytes are read to. */
  void initialize(Channel channel, FrameReader reader) {
    sockets.add(channel);
    channel.closeFuture().addListener(closed -> sockets.remove(channel));
    stack.configure(channel);
    channel.config().setRecvByteBufAllocator(reader.reads());
    channel.config().setWriteBufferWaterMark(EthernetConnection.WATER_MARKS);
    channel.config().setMessageSizeEstimator(() -> EthernetContext::heldBy);
    channel.pipeline().addLast(reader);
  }

  /**
   * What a message holds until the socket has it: of a batch all its memory, however little is in
   * it. So the water marks bound the memory of batches too, when a peer does not read.
   */
  private static int heldBy(Object message) {
    return ((MemoryWindow) message).capacity();
  }

  /**
   * The end whose token that is, when it expects that peer; it is expected no longer then. Takes
   * the same time whichever token it is, and however much of it is right.
   */
  EthernetConnection claim(byte[] token, int rank, int tag) {
    EthernetConnection found = null;
    for (EthernetConnection connection : expected) {
      if (MessageDigest.isEqual(connection.token(), token)) {
        found = connection;
      }
    }
    boolean matches = found != null && found.remoteRank() == rank && found.tag() == tag;
    return matches && expected.remove(found) ? found : null;
  }

  void forget(EthernetConnection connection) {
    expected.remove(connection);
    connections.remove(connection);
  }

  /** Runs a task on the event loop; right here when there is no loop any more. */
  void onLoop(Runnable task) {
    if (loop.inEventLoop()) {
      task.run();
    } else {
      later(task);
    }
  }

  /** As {@link #onLoop}, but behind what the loop is doing, which may be a read. */
  void later(Runnable task) {
    try {
      loop.execute(task);
    } catch (RejectedExecutionException e) {
      // The loop has ended; those who come late take turns.
      synchronized (sockets) {
        task.run();
      }
    }
  }

  private void requireOpen() {
    if (closed.get()) {
      throw new InvalidUsage("the ETHERNET context of rank " + rank() + " is closed");
    }
  }
}
