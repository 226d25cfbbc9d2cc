// SPDX-License-Identifier: Apache-2.0
// The kernels of the family "cuda": collectives that only move bytes.
#include "exchange_packets.cuh"
#include "exchange_push.cuh"
#include "exchange_send_receive.cuh"
#include "exchange_short.cuh"

// Two blocks of these fit on a multiprocessor: 64 registers a thread.
#define FLUXCCL_EXCHANGE extern "C" __global__ void __launch_bounds__(512, 2)

FLUXCCL_EXCHANGE fluxccl_exchange_ll8(
    const __grid_constant__ fluxccl::collectives::MappedPeers peers,
    const __grid_constant__ fluxccl::collectives::ExchangeParts parts) {
  fluxccl::collectives::exchangeByPackets<fluxccl::collectives::Ll8Unit>(peers, parts);
}

FLUXCCL_EXCHANGE fluxccl_exchange_ll128(
    const __grid_constant__ fluxccl::collectives::MappedPeers peers,
    const __grid_constant__ fluxccl::collectives::ExchangeParts parts) {
  fluxccl::collectives::exchangeByPackets<fluxccl::collectives::Ll128Unit>(peers, parts);
}

FLUXCCL_EXCHANGE fluxccl_exchange_short_ll8(
    const __grid_constant__ fluxccl::collectives::ShortExchange call) {
  using namespace fluxccl::collectives;
  ShortLaunch<Ll8Rows, Ll8Unit>(call).run();
}

FLUXCCL_EXCHANGE fluxccl_exchange_short_ll128(
    const __grid_constant__ fluxccl::collectives::ShortExchange call) {
  using namespace fluxccl::collectives;
  ShortLaunch<Ll128Rows, Ll128Unit>(call).run();
}

FLUXCCL_EXCHANGE fluxccl_exchange_send_receive(
    const __grid_constant__ fluxccl::collectives::MappedPeers peers,
    const __grid_constant__ fluxccl::collectives::ExchangeParts parts) {
  fluxccl::collectives::sendAndReceive(peers, parts);
}

FLUXCCL_EXCHANGE fluxccl_exchange_push(
    const __grid_constant__ fluxccl::collectives::MappedPeers peers,
    const __grid_constant__ fluxccl::collectives::ExchangeParts parts, int inStep) {
  fluxccl::collectives::exchangeByStores(peers, parts, inStep != 0);
}

FLUXCCL_EXCHANGE fluxccl_exchange_meet(
    const __grid_constant__ fluxccl::collectives::MappedPeers peers) {
  fluxccl::collectives::meetAll(peers);
}

FLUXCCL_EXCHANGE fluxccl_exchange_own(
    const __grid_constant__ fluxccl::collectives::ExchangeParts parts) {
  fluxccl::collectives::copyOwnPart(parts);
}
