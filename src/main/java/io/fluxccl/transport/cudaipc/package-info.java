/**
 * CUDA IPC as a transport: GPUs of one host map each other's memory, and a write is an asynchronous
 * copy on a stream that each connection has for itself.
 *
 * <p>Imports the root package, {@code device}, {@code device.cuda}, {@code transport} and {@code
 * transport.mapped}.
 */
package io.fluxccl.transport.cudaipc;
