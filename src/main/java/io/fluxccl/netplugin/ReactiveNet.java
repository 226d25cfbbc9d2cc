package io.fluxccl.netplugin;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.publisher.Mono;
import reactor.core.publisher.MonoSink;

/**
 * The operations of a network plugin as cold Monos: each subscription starts the operation anew. A
 * thread of this class polls the plugin. An operation whose deadline passes ends with {@link
 * io.fluxccl.Timeout}, which names the peer.
 *
 * <p>A comm that is used here must be used only here, {@link #register} and {@link
 * #close(AutoCloseable)} included: the thread makes all its calls, in the order of subscriptions.
 *
 * <p>An operation that is cancelled, or whose deadline passes, is dropped if the plugin has not
 * started it. Otherwise the thread polls it to its end and discards the result; its memory stays in
 * use until then, or until the comm is closed.
 *
 * <p>A call of the plugin that blocks holds up the thread, and with it all deadlines: {@link
 * #close(Duration)} then ends the operations that wait. Results are emitted on the thread, which
 * must not be blocked. Thread-safe.
 */
public final class ReactiveNet implements AutoCloseable {
  private static final Logger LOGGER = LoggerFactory.getLogger(ReactiveNet.class);

  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(10);

  private final NetPlugin plugin;
  private final NetLoop loop;

  private ReactiveNet(NetPlugin plugin) {
    this.plugin = plugin;
    this.loop = new NetLoop("fluxccl-reactive-net-" + plugin.name());
  }

  /**
   * Starts the thread.
   *
   * @param plugin the plugin; misuse is refused as {@link CheckedNetPlugin} does. Remains the
   *     caller's, to be closed after this.
   * @return the plugin's reactive face
   */
  public static ReactiveNet of(NetPlugin plugin) {
    ReactiveNet net = new ReactiveNet(CheckedNetPlugin.of(plugin));
    net.loop.start();
    return net;
  }

  /**
   * Starts to listen for one connection.
   *
   * @param device on which
   * @param timeout by when
   * @return the listener
   */
  public Mono<NetListenComm> listen(int device, Duration timeout) {
    return call(
        plugin,
        () -> "listen on device " + device,
        timeout,
        () -> plugin.listen(device),
        NetListenComm::close);
  }

  /**
   * Connects to a listener.
   *
   * @param device on which
   * @param handle the listener's {@link NetListenComm#handle()}
   * @param timeout by when
   * @return the sending end
   */
  public Mono<NetSendComm> connect(int device, byte[] handle, Duration timeout) {
    return create(
        sink -> {
          NetHandle progress = new NetHandle(handle);
          submit(
              sink,
              new NetOperation<NetSendComm>(
                  progress,
                  () -> "connect of " + plugin.name() + " to its peer, on device " + device,
                  Deadline.after(timeout),
                  sink) {
                private boolean begun;

                @Override
                NetSendComm poll() {
                  begun = true;
                  return plugin.connect(device, progress);
                }

                @Override
                boolean hasBegun() {
                  return begun;
                }

                @Override
                void drop() {
                  progress.abandon();
                }

                @Override
                void discard(NetSendComm comm) {
                  comm.close();
                }
              });
        });
  }

  /**
   * Takes the connection that comes to a listener.
   *
   * @param listener where
   * @param timeout by when
   * @return the receiving end
   */
  public Mono<NetRecvComm> accept(NetListenComm listener, Duration timeout) {
    return create(
        sink ->
            submit(
                sink,
                new NetOperation<NetRecvComm>(
                    listener,
                    () -> "accept of " + plugin.name() + ", which waits for its peer,",
                    Deadline.after(timeout),
                    sink) {
                  @Override
                  NetRecvComm poll() {
                    return listener.accept();
                  }

                  @Override
                  boolean hasBegun() {
                    return false; // who stops asking has left nothing behind
                  }

                  @Override
                  void discard(NetRecvComm comm) {
                    comm.close();
                  }
                }));
  }

  /**
   * Registers memory for a connection.
   *
   * @param comm which
   * @param address where it begins
   * @param size bytes
   * @param type whose memory it is
   * @param timeout by when
   * @return the registration
   */
  public Mono<NetMemory> register(
      NetComm comm, long address, long size, PointerType type, Duration timeout) {
    return call(
        comm,
        () -> "register with " + comm.peer(),
        timeout,
        () -> comm.register(address, size, type),
        NetMemory::close);
  }

  /**
   * Sends one message.
   *
   * @param comm on which connection
   * @param address of its first byte
   * @param size bytes, 0 or more
   * @param tag which receive of a group it is for; 0 where there are no groups
   * @param memory the registration that holds it
   * @param timeout by when
   * @return how many bytes were sent
   */
  public Mono<Long> send(
      NetSendComm comm, long address, long size, int tag, NetMemory memory, Duration timeout) {
    return request(
        comm,
        () -> "send of " + size + " bytes to " + comm.peer(),
        timeout,
        () -> comm.isend(address, size, tag, memory),
        request -> request.size(0));
  }

  /**
   * Receives one message.
   *
   * @param comm on which connection
   * @param address where its first byte goes
   * @param size bytes there, at least as many as are sent
   * @param tag as the sender's; 0 where there are no groups
   * @param memory the registration that holds it
   * @param timeout by when
   * @return how many bytes came
   */
  public Mono<Long> receive(
      NetRecvComm comm, long address, long size, int tag, NetMemory memory, Duration timeout) {
    return request(
        comm,
        () -> "receive of " + size + " bytes from " + comm.peer(),
        timeout,
        () -> comm.irecv(address, size, tag, memory),
        request -> request.size(0));
  }

  /**
   * Receives a group of messages, told apart by their tags. The arrays must stay as they are until
   * it is done.
   *
   * @param comm on which connection
   * @param addresses n addresses
   * @param sizes n sizes in bytes
   * @param tags n tags, all different
   * @param memories n registrations
   * @param timeout by when
   * @return how many bytes came for each
   */
  public Mono<long[]> receive(
      NetRecvComm comm,
      long[] addresses,
      long[] sizes,
      int[] tags,
      NetMemory[] memories,
      Duration timeout) {
    int n = addresses.length;
    if (sizes.length != n || tags.length != n || memories.length != n) {
      throw InvalidUsage.of(
          "a group of n=%s addresses has %s sizes, %s tags and %s memories; give n of" + " each",
          n, sizes.length, tags.length, memories.length);
    }
    return request(
        comm,
        () -> "receive of a group of " + n + " from " + comm.peer(),
        timeout,
        () -> comm.irecv(n, addresses, sizes, tags, memories),
        request -> {
          long[] came = new long[n];
          for (int i = 0; i < n; i++) {
            came[i] = request.size(i);
          }
          return came;
        });
  }

  /**
   * Closes a comm, a listener or a registration, behind what was asked of it before, and of a
   * registration's comm: what has begun and is waited for has the time of this close to come to its
   * end. What has not ended by then ends as with any close of a comm that is in use.
   *
   * @param object what {@link #connect}, {@link #accept}, {@link #listen} or {@link #register} gave
   * @param timeout by when
   * @return completes when it is closed
   */
  public Mono<Void> close(AutoCloseable object, Duration timeout) {
    // A registration's is behind what uses it, which is in the lane of its comm.
    Object lane = object instanceof CheckedMemory memory ? memory.comm() : object;
    return Mono.<AutoCloseable>create(
            sink ->
                submit(
                    sink,
                    new Call<>(lane, () -> "close", Deadline.after(timeout), sink) {
                      @Override
                      AutoCloseable call() throws Exception {
                        object.close();
                        return object;
                      }

                      @Override
                      boolean isClose() {
                        return true;
                      }
                    }))
        .then();
  }

  /** What is over when its one call has returned. */
  private abstract static class Call<T> extends NetOperation<T> {
    Call(Object lane, Supplier<String> description, Deadline deadline, MonoSink<T> sink) {
      super(lane, description, deadline, sink);
    }

    abstract T call() throws Exception;

    @Override
    final T poll() {
      try {
        return call();
      } catch (RuntimeException e) {
        throw e;
      } catch (Exception e) {
        throw new InvalidUsage("can't be closed: " + e.getMessage(), e);
      }
    }

    @Override
    final boolean hasBegun() {
      return false;
    }
  }

  private static void submitTo(NetLoop loop, MonoSink<?> sink, NetOperation<?> operation) {
    sink.onCancel(operation::abandon);
    loop.submit(operation);
  }

  private void submit(MonoSink<?> sink, NetOperation<?> operation) {
    submitTo(loop, sink, operation);
  }

  /** Of what is to be closed, also when who cancels does so before having taken it. */
  private <T extends AutoCloseable> Mono<T> create(Consumer<MonoSink<T>> begin) {
    return Mono.create(begin).doOnDiscard(AutoCloseable.class, this::closeUntaken);
  }

  private void closeUntaken(AutoCloseable object) {
    close(object, CLOSE_TIMEOUT)
        .subscribe(
            done -> {},
            error -> LOGGER.warn("{}: what nobody took is not closed", loop.roleName(), error));
  }

  private <T extends AutoCloseable> Mono<T> call(
      Object lane,
      Supplier<String> description,
      Duration timeout,
      Callable<T> call,
      Consumer<T> discard) {
    return create(
        sink ->
            submit(
                sink,
                new Call<T>(lane, description, Deadline.after(timeout), sink) {
                  @Override
                  T call() throws Exception {
                    return call.call();
                  }

                  @Override
                  void discard(T result) {
                    discard.accept(result);
                  }
                }));
  }

  private <T> Mono<T> request(
      NetComm comm,
      Supplier<String> description,
      Duration timeout,
      Supplier<NetRequest> post,
      Function<NetRequest, T> result) {
    return Mono.create(
        sink ->
            submit(
                sink,
                new NetOperation<T>(comm, description, Deadline.after(timeout), sink) {
                  private NetRequest request;

                  @Override
                  T poll() {
                    if (request == null) {
                      request = post.get();
                    }
                    return request != null && request.test() ? result.apply(request) : null;
                  }

                  @Override
                  boolean hasBegun() {
                    return request != null;
                  }
                }));
  }

  /** As {@link #close(Duration)}, with 10 s. */
  @Override
  public void close() {
    close(CLOSE_TIMEOUT);
  }

  /**
   * Ends the loop: what is under way ends with {@link io.fluxccl.Aborted}, further calls are
   * refused. The comms and the plugin are for their owner to close, after this. Idempotent.
   *
   * @param timeout how long to wait for a call of the plugin that the loop is in
   * @throws io.fluxccl.Timeout if that call has not returned by then, naming the plugin and what
   *     was asked of it. All operations have ended nevertheless. Left behind are the loop's daemon
   *     thread, which ends when the call returns, and the memory and the comm that the call uses:
   *     they must stay until then
   */
  public void close(Duration timeout) {
    loop.close(timeout);
  }
}
