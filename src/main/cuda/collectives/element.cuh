// SPDX-License-Identifier: Apache-2.0
// Combines elements of each type. The twin of HostReduction; both compute the same bits.
//
// 8-bit and 16-bit floating-point values are combined as floats and rounded once. Integers wrap around. Minimum and maximum of
// floating-point values are NaN if one is.
#pragma once

#include <fluxccl/config.cuh>
#include <fluxccl/ptx.cuh>

namespace fluxccl {
namespace collectives {

// IEEE 754 binary16, by its bits.
struct Half {
  unsigned short bits;
};

// The upper half of a float.
struct Bfloat16 {
  unsigned short bits;
};

// 4 bits of exponent, 3 of fraction, no infinity; NaN is 0x7f and 0xff.
struct Float8E4m3 {
  uint8_t bits;
};

// The upper half of a binary16.
struct Float8E5m2 {
  uint8_t bits;
};

// kAddsPairs: whether addPairs() adds two elements in 4 bytes to two others. The sum of two numbers of 16 bits is the
// same whether it is rounded once, or to a float before. A sum that is a NaN is 0x7fff.
//
// T is the type in memory, Value the type in which values are combined, Modular the unsigned type in which
// arithmetic wraps around, Divisor the type by which an average divides.
template <typename T, typename Modular, typename Divisor>
struct IntegerElement {
  using Value = T;
  static constexpr bool kAddsPairs = false;

  static FLUXCCL_DEVICE Value widen(T stored) { return stored; }
  static FLUXCCL_DEVICE T narrow(Value value) { return value; }
  static FLUXCCL_DEVICE Value add(Value a, Value b) {
    return static_cast<T>(static_cast<Modular>(a) + static_cast<Modular>(b));
  }
  static FLUXCCL_DEVICE Value multiply(Value a, Value b) {
    return static_cast<T>(static_cast<Modular>(a) * static_cast<Modular>(b));
  }
  static FLUXCCL_DEVICE Value smaller(Value a, Value b) { return b < a ? b : a; }
  static FLUXCCL_DEVICE Value larger(Value a, Value b) { return a < b ? b : a; }
  static FLUXCCL_DEVICE Value divide(Value sum, int by) { return static_cast<T>(sum / static_cast<Divisor>(by)); }
};

template <typename T>
struct FloatElement {
  using Value = T;
  static constexpr bool kAddsPairs = false;

  static FLUXCCL_DEVICE Value widen(T stored) { return stored; }
  static FLUXCCL_DEVICE T narrow(Value value) { return value; }
  static FLUXCCL_DEVICE Value add(Value a, Value b) { return a + b; }
  static FLUXCCL_DEVICE Value multiply(Value a, Value b) { return a * b; }
  // If one value is a NaN, fmin and fmax would return the other one. For zeros they choose the sign as Java
  // does.
  static FLUXCCL_DEVICE Value smaller(Value a, Value b) { return a != a ? a : b != b ? b : least(a, b); }
  static FLUXCCL_DEVICE Value larger(Value a, Value b) { return a != a ? a : b != b ? b : most(a, b); }
  static FLUXCCL_DEVICE Value divide(Value sum, int by) { return sum / static_cast<Value>(by); }

 private:
  static FLUXCCL_DEVICE float least(float a, float b) { return fminf(a, b); }
  static FLUXCCL_DEVICE double least(double a, double b) { return fmin(a, b); }
  static FLUXCCL_DEVICE float most(float a, float b) { return fmaxf(a, b); }
  static FLUXCCL_DEVICE double most(double a, double b) { return fmax(a, b); }
};

template <typename T>
struct Element;

template <>
struct Element<signed char> : IntegerElement<signed char, uint32_t, int32_t> {};
template <>
struct Element<uint8_t> : IntegerElement<uint8_t, uint32_t, int32_t> {};
template <>
struct Element<int32_t> : IntegerElement<int32_t, uint32_t, int32_t> {};
template <>
struct Element<uint32_t> : IntegerElement<uint32_t, uint32_t, uint32_t> {};
template <>
struct Element<int64_t> : IntegerElement<int64_t, uint64_t, int64_t> {};
template <>
struct Element<uint64_t> : IntegerElement<uint64_t, uint64_t, uint64_t> {};
template <>
struct Element<float> : FloatElement<float> {};
template <>
struct Element<double> : FloatElement<double> {};

template <>
struct Element<Half> : FloatElement<float> {
  static constexpr bool kAddsPairs = true;
  static FLUXCCL_DEVICE uint32_t addPairs(uint32_t a, uint32_t b) { return addHalfPairs(a, b); }
  static FLUXCCL_DEVICE float widen(Half stored) {
    return halfToFloat(stored.bits);
  }
  static FLUXCCL_DEVICE Half narrow(float value) {
    return Half{floatToHalf(value)};
  }
};

template <>
struct Element<Bfloat16> : FloatElement<float> {
  static constexpr bool kAddsPairs = kAddsBfloat16Pairs;
  static FLUXCCL_DEVICE uint32_t addPairs(uint32_t a, uint32_t b) { return addBfloat16Pairs(a, b); }
  static FLUXCCL_DEVICE float widen(Bfloat16 stored) { return __uint_as_float(static_cast<uint32_t>(stored.bits) << 16); }
  static FLUXCCL_DEVICE Bfloat16 narrow(float value) { return Bfloat16{floatToBfloat16(value)}; }
};

// Rounds to the nearest, ties to even. Values beyond the largest one, infinities included, become the largest
// one.
template <int kFractionBits, int kBias, uint32_t kLargest>
FLUXCCL_DEVICE uint8_t narrowToFloat8(float value) {
  const uint32_t sign = __float_as_uint(value) >> 24 & 0x80u;
  const uint32_t magnitude = __float_as_uint(value) & 0x7fffffffu;
  if (value != value) {
    return 0x7f;
  }
  constexpr int kLost = 23 - kFractionBits;
  uint32_t bits;
  if (magnitude < (128u - kBias) << 23) {
    // Below the smallest normal value: adding this number rounds to whole units of the last place, which are
    // then the low bits of the sum.
    const uint32_t unit = (127u + 24u - kBias - kFractionBits) << 23;
    bits = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(unit)) - unit;
  } else {
    const uint32_t rounded = magnitude + (1u << (kLost - 1)) - 1 + (magnitude >> kLost & 1u);
    bits = (rounded >> kLost) - ((127u - kBias) << kFractionBits);
  }
  return static_cast<uint8_t>(sign | (bits < kLargest ? bits : kLargest));
}

template <>
struct Element<Float8E4m3> : FloatElement<float> {
  static FLUXCCL_DEVICE float widen(Float8E4m3 stored) {
    // The bits read as a binary16, whose exponent is then too small by 8.
    const uint32_t half = (stored.bits & 0x80u) << 8 | (stored.bits & 0x7fu) << 7;
    const float value = halfToFloat(static_cast<unsigned short>(half)) * 256.0f;
    return (stored.bits & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : value;
  }
  static FLUXCCL_DEVICE Float8E4m3 narrow(float value) { return Float8E4m3{narrowToFloat8<3, 7, 0x7e>(value)}; }
};

template <>
struct Element<Float8E5m2> : FloatElement<float> {
  static FLUXCCL_DEVICE float widen(Float8E5m2 stored) {
    return halfToFloat(static_cast<unsigned short>(stored.bits << 8));
  }
  static FLUXCCL_DEVICE Float8E5m2 narrow(float value) { return Float8E5m2{narrowToFloat8<2, 15, 0x7b>(value)}; }
};

}  // namespace collectives
}  // namespace fluxccl
