// SPDX-License-Identifier: Apache-2.0
/**
 * The API that most users call: operations in which every rank takes part, as cold Monos.
 *
 * <p>Imports everything below.
 */
package io.fluxccl.collective;
