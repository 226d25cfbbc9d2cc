/**
 * Collectives of ranks of which some can't map each other's memory: several hosts, or sockets by
 * choice. On the host device and on GPUs, over pipes of staging memory between each two ranks.
 *
 * <p>Imports {@code collective} and everything below it; is found by ServiceLoader.
 */
package io.fluxccl.collective.channel;
