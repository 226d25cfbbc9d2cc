// SPDX-License-Identifier: Apache-2.0
/**
 * Channels, through which kernels access a peer's memory: with their own threads ({@code
 * SmChannel}) or with the host's proxy ({@code ProxyChannel}). Also the service that builds proxy
 * channels and executes their requests.
 *
 * <p>Imports everything below: {@code proxy}, {@code semaphore}, {@code communicator}, {@code
 * transport}, {@code device}.
 */
package io.fluxccl.channel;
