// SPDX-License-Identifier: Apache-2.0
/**
 * HTTP as the clients of OpenAI know it, health checks, metrics and a page. Knows nothing of ranks
 * but what {@link io.fluxccl.samples.inference.engine.TextEngine} says.
 */
package io.fluxccl.samples.inference.http;
