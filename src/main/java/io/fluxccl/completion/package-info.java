/**
 * How the host learns that a stream got somewhere: streams store growing numbers into pinned
 * memory, one thread looks at all of them and completes futures.
 *
 * <p>Imports the root package and {@code device}.
 */
package io.fluxccl.completion;
