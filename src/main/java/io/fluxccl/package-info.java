// SPDX-License-Identifier: Apache-2.0
/**
 * The types that all packages share: errors, data types, reduction operators, deadlines, futures of
 * set-up operations.
 *
 * <p>Imports nothing of FluxCCL.
 */
package io.fluxccl;
