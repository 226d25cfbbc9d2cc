/**
 * RDMA verbs by DiSNI. Loaded, with DiSNI itself, by a class loader of its own that knows where
 * DiSNI's native library is: so nothing may refer to these classes but by name.
 *
 * <p>Imports {@code transport} and {@code transport.ib}.
 */
package io.fluxccl.transport.ib.disni;
