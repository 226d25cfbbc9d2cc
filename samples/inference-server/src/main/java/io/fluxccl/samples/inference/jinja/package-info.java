// SPDX-License-Identifier: Apache-2.0
/**
 * The part of Jinja that chat templates use, with the rules of Jinja 3 for Python. Templates see
 * only the values that they are given: strings, numbers, lists, maps and functions.
 */
package io.fluxccl.samples.inference.jinja;
