// SPDX-License-Identifier: Apache-2.0
// Reduces some elements in one thread, in the order in which the sources are passed.
#pragma once

#include "element.cuh"

namespace fluxccl {
namespace collectives {

// The ordinals of io.fluxccl.ReduceOp.
enum class ReduceOp : int32_t { SUM, PROD, MIN, MAX, AVG };

// Word is the unit of a load or store. It contains one or more elements of type T.
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

  // Takes the next source of a sum or an average.
  FLUXCCL_DEVICE void add(const Word& word) {
    T elements[kElements];
    memcpy(elements, &word, sizeof(Word));
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      values_[i] = Element<T>::add(values_[i], Element<T>::widen(elements[i]));
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
        add(word);
    }
  }

  // The result of all sources.
  FLUXCCL_DEVICE Word finish(ReduceOp op, int nRanks) const {
    return op == ReduceOp::AVG ? average(*this, nRanks) : narrowed();
  }

 private:
  FLUXCCL_DEVICE Word narrowed() const {
    T elements[kElements];
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      elements[i] = Element<T>::narrow(values_[i]);
    }
    Word word;
    memcpy(&word, elements, sizeof(Word));
    return word;
  }

  static FLUXCCL_DEVICE_CALL Word average(Accumulator sums, int nRanks) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      sums.values_[i] = Element<T>::divide(sums.values_[i], nRanks);
    }
    return sums.narrowed();
  }

  typename Element<T>::Value values_[kElements];
};

// Combines a batch of words with any operation.
template <int kCount, typename T, typename Word>
FLUXCCL_DEVICE_CALL Accumulator<T, Word> combineAny(Accumulator<T, Word> result, const Word* words, int first,
                                                    int nRanks, ReduceOp op) {
  if (first == 0) {
    result.begin(words[0]);
  }
#pragma unroll 1
  for (int i = first == 0 ? 1 : 0; i < kCount && first + i < nRanks; ++i) {
    result.combine(words[i], op);
  }
  return result;
}

// Combines the words of ranks first, first + 1, ..., up to the last rank. Only the code for sums and averages
// is inlined.
template <int kCount, typename T, typename Word>
FLUXCCL_DEVICE void combineBatch(Accumulator<T, Word>& result, const Word (&batch)[kCount], int first, int nRanks,
                                 ReduceOp op) {
  if (op == ReduceOp::SUM || op == ReduceOp::AVG) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i == 0 && first == 0) {
        result.begin(batch[i]);
      } else if (first + i < nRanks) {
        result.add(batch[i]);
      }
    }
  } else {
    Word words[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      words[i] = batch[i];
    }
    result = combineAny<kCount>(result, words, first, nRanks, op);
  }
}

// Returns the sums of the elements of two words.
template <typename T, typename Word>
FLUXCCL_DEVICE Word addWords(const Word& first, const Word& second) {
  if constexpr (Element<T>::kAddsPairs) {
    constexpr int kPairs = sizeof(Word) / sizeof(uint32_t);
    uint32_t sums[kPairs];
    uint32_t others[kPairs];
    memcpy(sums, &first, sizeof(Word));
    memcpy(others, &second, sizeof(Word));
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      sums[i] = Element<T>::addPairs(sums[i], others[i]);
    }
    Word word;
    memcpy(&word, sums, sizeof(Word));
    return word;
  } else {
    Accumulator<T, Word> sum;
    sum.begin(first);
    sum.add(second);
    return sum.finish(ReduceOp::SUM, 2);
  }
}

template <typename T, typename Word>
FLUXCCL_DEVICE_CALL Word reduceAnyPair(Word first, Word second, ReduceOp op) {
  Accumulator<T, Word> result;
  result.begin(first);
  result.combine(second, op);
  return result.finish(op, 2);
}

// Reduces the words of all ranks in rank order; wordOf(rank) loads one. Loads as many of them at once as fit
// into the registers of a thread, in a block of 512.
template <typename T, typename Word, typename WordOf>
FLUXCCL_DEVICE Word reduceLoaded(int nRanks, ReduceOp op, WordOf wordOf) {
  constexpr int kAtOnce = sizeof(Word) == 16 ? 4 : 8;
  Accumulator<T, Word> result;
#pragma unroll 1
  for (int first = 0; first < nRanks; first += kAtOnce) {
    Word batch[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < nRanks) {
        batch[i] = wordOf(first + i);
      }
    }
    combineBatch(result, batch, first, nRanks, op);
  }
  return result.finish(op, nRanks);
}

}  // namespace collectives
}  // namespace fluxccl
