// SPDX-License-Identifier: Apache-2.0
/**
 * TLS 1.3 between the ranks of a job: the certificate of this process, whose fingerprint its peers
 * know, and the records of one socket.
 */
@Experimental
package io.fluxccl.tls;

import io.fluxccl.Experimental;
