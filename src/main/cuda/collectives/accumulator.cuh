// Some elements being reduced by one thread, in the order in which the sources are given.
#pragma once

#include "element.cuh"

namespace fluxccl {
namespace collectives {

// The ordinals of io.fluxccl.ReduceOp.
enum class ReduceOp : int32_t { SUM, PROD, MIN, MAX, AVG };

// Word is what is loaded and stored at once, and holds one element of type T or several.
template <typename T, typename Word>
class Accumulator {
 public:
  static constexpr int kElements = sizeof(Word) / sizeof(T);

  // Begins with the first source.
  FLUXCCL_DEVICE void begin(const Word& word) {
    T elements[kElements];
    memcpy(elements, &word, sizeof(Word));
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      values_[i] = Element<T>::widen(elements[i]);
    }
  }

  // Takes the next source. An average adds up first.
  FLUXCCL_DEVICE void combine(const Word& word, ReduceOp op) {
    T elements[kElements];
    memcpy(elements, &word, sizeof(Word));
    switch (op) {
      case ReduceOp::PROD:
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          values_[i] = Element<T>::multiply(values_[i], Element<T>::widen(elements[i]));
        }
        break;
      case ReduceOp::MIN:
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          values_[i] = Element<T>::smaller(values_[i], Element<T>::widen(elements[i]));
        }
        break;
      case ReduceOp::MAX:
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          values_[i] = Element<T>::larger(values_[i], Element<T>::widen(elements[i]));
        }
        break;
      default:
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          values_[i] = Element<T>::add(values_[i], Element<T>::widen(elements[i]));
        }
    }
  }

  // The result of all sources.
  FLUXCCL_DEVICE Word finish(ReduceOp op, int nRanks) const {
    T elements[kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      elements[i] = Element<T>::narrow(op == ReduceOp::AVG ? Element<T>::divide(values_[i], nRanks) : values_[i]);
    }
    Word word;
    memcpy(&word, elements, sizeof(Word));
    return word;
  }

 private:
  typename Element<T>::Value values_[kElements];
};

// So many loads of as many sources are on their way at once.
constexpr int kBatch = 8;

// Reduces the words of all ranks in rank order; wordOf(rank) is the address of one.
template <typename T, typename Word, typename WordOf>
FLUXCCL_DEVICE Word reduceWords(int nRanks, ReduceOp op, WordOf wordOf) {
  Accumulator<T, Word> sum;
  for (int first = 0; first < nRanks; first += kBatch) {
    Word batch[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i < nRanks) {
        batch[i] = *wordOf(first + i);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i == 0) {
        sum.begin(batch[i]);
      } else if (first + i < nRanks) {
        sum.combine(batch[i], op);
      }
    }
  }
  return sum.finish(op, nRanks);
}

}  // namespace collectives
}  // namespace fluxccl
