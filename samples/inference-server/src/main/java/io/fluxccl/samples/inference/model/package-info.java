// SPDX-License-Identifier: Apache-2.0
/** What a Hugging Face folder says of a model: its shape, its weights, its tokens. */
package io.fluxccl.samples.inference.model;
