package io.fluxccl.transport;

/**
 * Where a registered memory comes from, as its owner said.
 *
 * @param rank the owner
 * @param hostHash tells hosts apart
 * @param processHash tells processes apart
 * @param address the address in the owner's process
 * @param size bytes, 1 or more
 */
public record MemoryOrigin(int rank, long hostHash, long processHash, long address, long size) {}
