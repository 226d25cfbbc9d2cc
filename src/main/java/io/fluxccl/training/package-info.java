// SPDX-License-Identifier: Apache-2.0
/**
 * Data-parallel training: the same model on every rank, gradients averaged while the backward pass
 * runs, and a state that survives the death of a rank. For any framework whose tensors are views.
 *
 * <p>Imports {@code group} and the layers below. It is the jar {@code fluxccl-training}.
 */
@Experimental
package io.fluxccl.training;

import io.fluxccl.Experimental;
