/**
 * What a kernel holds: channels to a peer's memory, by copying threads ({@code SmChannel}) or by
 * asking the host's proxy ({@code ProxyChannel}); and the service that builds proxy channels and
 * does what they ask for.
 *
 * <p>Imports everything below: {@code proxy}, {@code semaphore}, {@code communicator}, {@code
 * transport}, {@code device}.
 */
package io.fluxccl.channel;
