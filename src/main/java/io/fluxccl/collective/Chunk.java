package io.fluxccl.collective;

/**
 * A part of a {@linkplain Collectives#chunked chunked} collective that is done.
 *
 * @param index from 0
 * @param offset of its first element in the call's output
 * @param count of its elements
 */
public record Chunk(int index, long offset, long count) {}
