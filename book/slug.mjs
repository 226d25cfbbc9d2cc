// SPDX-License-Identifier: Apache-2.0
/** The anchor of a heading, as GitHub forms it, so that a link works there and here. */
export const slug = heading =>
  heading.trim().toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, '').replace(/\s/g, '-')
