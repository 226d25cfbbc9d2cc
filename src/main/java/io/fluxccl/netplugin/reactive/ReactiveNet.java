// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.netplugin.NetComm;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetListenComm;
import io.fluxccl.netplugin.NetMemory;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRecvComm;
import io.fluxccl.netplugin.NetRequest;
import io.fluxccl.netplugin.NetSendComm;
import io.fluxccl.netplugin.PointerType;
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
 * The operations of a network plugin as cold Monos: each subscription starts the operation again. A
 * thread of this class polls the plugin. An operation whose deadline passes ends with {@link
 * io.fluxccl.Timeout}, which names the peer.
 *
 * <p>A comm that is used here must be used only here, {@link #register} and {@link
 * #close(AutoCloseable, Duration)} included. The thread makes all calls, in subscription order.
 *
 * <p>An operation that is cancelled, or whose deadline passes, is dropped if the plugin has not
 * started it. Otherwise the thread polls it to its end and discards the result; its memory stays in
 * use until then, or until the comm is closed.
 *
 * <p>A call of the plugin that blocks also blocks the thread, and so delays all deadlines: {@link
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
   * @param plugin the plugin, checked by {@link CheckedNetPlugin}; the caller closes it after this
   * @return the plugin's reactive interface
   */
  public static ReactiveNet of(NetPlugin plugin) {
    ReactiveNet net = new ReactiveNet(CheckedNetPlugin.of(plugin));
    net.loop.start();
    return net;
  }

  /**
   * Starts to listen for one connection.
   *
   * @param device the device to use
   * @param timeout the longest time until the result
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
   * @param device the device to use
   * @param handle the listener's {@link NetListenComm#handle()}
   * @param timeout the longest time until the result
   * @return the sending end
   */
  public Mono<NetSendComm> connect(int device, byte[] handle, Duration timeout) {
    return create(
        sink -> {
          NetHandle progress = new NetHandle(handle);
          submit(sink, new NetConnect(plugin, device, progress, Deadline.after(timeout), sink));
        });
  }

  /**
   * Accepts the connection that arrives at a listener.
   *
   * @param listener the listener
   * @param timeout the longest time until the result
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
                    return false; // a caller may stop polling: no state remains
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
   * @param comm the connection's end
   * @param address the address of its first byte
   * @param size bytes
   * @param type the kind of memory
   * @param timeout the longest time until the result
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
   * Registers memory that a dma-buf describes, for a connection.
   *
   * @param comm the connection's end
   * @param address the address of its first byte
   * @param size bytes
   * @param type the kind of memory
   * @param offset bytes from the dma-buf's start
   * @param fileDescriptor the dma-buf; the caller owns it and keeps it open until the result
   * @param timeout the longest time until the result
   * @return the registration
   */
  public Mono<NetMemory> registerDmaBuf(
      NetComm comm,
      long address,
      long size,
      PointerType type,
      long offset,
      int fileDescriptor,
      Duration timeout) {
    return call(
        comm,
        () -> "register of a dma-buf with " + comm.peer(),
        timeout,
        () -> comm.registerDmaBuf(address, size, type, offset, fileDescriptor),
        NetMemory::close);
  }

  /**
   * Sends one message.
   *
   * @param comm the connection's end
   * @param address the address of the message's first byte
   * @param size bytes, 0 or more
   * @param tag identifies the receive in its group; 0 if the network has no groups
   * @param memory the registration that contains the range
   * @param timeout the longest time until the result
   * @return the number of bytes sent
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
   * @param comm the connection's end
   * @param address the address for the first byte
   * @param size bytes of room at the address, at least as many as are sent
   * @param tag the sender's tag; 0 if the network has no groups
   * @param memory the registration that contains the range
   * @param timeout the longest time until the result
   * @return the number of bytes received
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
   * Receives a group of messages, which their tags identify. The caller must not change the arrays
   * until the receive is done.
   *
   * @param comm the connection's end
   * @param addresses n addresses
   * @param sizes n sizes in bytes
   * @param tags n tags, all different
   * @param memories n registrations
   * @param timeout the longest time until the result
   * @return the number of bytes received for each
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
   * Makes received data in CUDA memory visible to the GPU.
   *
   * @param comm the connection's end
   * @param addresses n addresses
   * @param sizes n sizes in bytes
   * @param memories n registrations
   * @param timeout the longest time until the result
   * @return completes when the data is visible
   */
  public Mono<Void> flush(
      NetRecvComm comm, long[] addresses, long[] sizes, NetMemory[] memories, Duration timeout) {
    int n = addresses.length;
    if (sizes.length != n || memories.length != n) {
      throw InvalidUsage.of(
          "a flush of n=%s addresses has %s sizes and %s memories; give n of each",
          n, sizes.length, memories.length);
    }
    return Mono.<Boolean>create(
            sink ->
                submit(
                    sink,
                    new NetRequestOperation<Boolean>(
                        comm,
                        () -> "flush of " + n + " ranges from " + comm.peer(),
                        Deadline.after(timeout),
                        sink,
                        () -> comm.iflush(n, addresses, sizes, memories),
                        request -> true,
                        true)))
        .then();
  }

  /**
   * Closes a comm, a listener or a registration, after the earlier operations on it and on a
   * registration's comm. Operations that have begun and still have a subscriber can complete until
   * this close times out. Later they end as with any close of a comm in use.
   *
   * @param object from {@link #connect}, {@link #accept}, {@link #listen} or {@link #register}
   * @param timeout the longest time until the result
   * @return completes when the object is closed
   */
  public Mono<Void> close(AutoCloseable object, Duration timeout) {
    // The close of a registration follows the operations that use it, in the lane of its comm.
    Object lane = object instanceof CheckedMemory memory ? memory.comm() : object;
    return Mono.<AutoCloseable>create(
            sink ->
                submit(
                    sink,
                    new NetCall<>(lane, () -> "close", Deadline.after(timeout), sink) {
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

  private void submit(MonoSink<?> sink, NetOperation<?> operation) {
    sink.onCancel(operation::abandon);
    loop.submit(operation);
  }

  /**
   * Returns a Mono that closes its result if the subscriber cancels before it receives the result.
   */
  private <T extends AutoCloseable> Mono<T> create(Consumer<MonoSink<T>> begin) {
    return Mono.create(begin).doOnDiscard(AutoCloseable.class, this::closeUntaken);
  }

  private void closeUntaken(AutoCloseable object) {
    close(object, CLOSE_TIMEOUT)
        .subscribe(
            done -> {},
            error ->
                LOGGER.warn(
                    "{}: could not close an object whose subscriber had cancelled",
                    loop.roleName(),
                    error));
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
                new NetCall<T>(lane, description, Deadline.after(timeout), sink) {
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
                new NetRequestOperation<T>(
                    comm, description, Deadline.after(timeout), sink, post, result, false)));
  }

  /** Closes this as {@link #close(Duration)} does, with 10 s. */
  @Override
  public void close() {
    close(CLOSE_TIMEOUT);
  }

  /**
   * Stops the thread: operations in progress end with {@link io.fluxccl.Aborted}, later calls are
   * refused. Their owner closes the comms and the plugin after this. Idempotent.
   *
   * @param timeout the longest wait for a plugin call in progress
   * @throws io.fluxccl.Timeout if that call has not returned by then; it names the plugin and the
   *     operation. All operations have ended nevertheless. The loop's daemon thread ends when the
   *     call returns; the memory and the comm that the call uses must stay until then
   */
  public void close(Duration timeout) {
    loop.close(timeout);
  }
}
