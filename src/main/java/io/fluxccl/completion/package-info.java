/**
 * How the host learns the progress of streams: streams store growing numbers into pinned memory;
 * one thread polls all of them and completes futures.
 *
 * <p>Imports the root package and {@code device}.
 */
package io.fluxccl.completion;
