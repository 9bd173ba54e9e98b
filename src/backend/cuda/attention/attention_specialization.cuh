#pragma once
// Specializations of the decode kernel for plain attention, as most models have it
// (DecodeSpecialization). Between two launches of it a step runs other kernels, and all share the
// instruction cache. The plain kernels have a third of the instructions, which also makes the
// launches behind them faster (bench/ladder/attention_decode.md).

#include <type_traits>

#include "backend/cuda/attention/attention_task.cuh"

namespace bl::cuda {

// The RowShape of a row of whole scale groups, as a constant of the cache type and the head size.
template <CacheType kType, int kDim>
struct WholeRow {
  static constexpr bool kScaled = TypeOfRows<kType>::kCode == KvRow::Code::kInt;
  static constexpr int kCodeBytes = kDim * TypeOfRows<kType>::kBits / 8;
  static constexpr int kGroups = kDim / kKvScaleGroup;
  static constexpr RowShape kShape{TypeOfRows<kType>::kCode,
                                   TypeOfRows<kType>::kBits,
                                   kDim,
                                   kCodeBytes,
                                   kCodeBytes + (kScaled ? 2 * kGroups : 0),
                                   kGroups};
};

// Replaces the parameters that are the same in all launches of a case by constants, so that the
// compiler removes the code for other values.
template <DecodeSpecialization kSpecialization, CacheTypes kTypes, int kDim>
struct CaseParams {
  static constexpr bool kPlain = kSpecialization != DecodeSpecialization::kAny;
  template <class T>
  using Of = std::conditional_t<kPlain, T, const T&>;

  template <class Params>
  __device__ __forceinline__ static Of<Params> attention(const Params& given) {
    if constexpr (!kPlain) {
      return given;
    } else {
      Params p = given;
      p.k_row = WholeRow<kTypes.k, kDim>::kShape;
      p.v_row = WholeRow<kTypes.v, kDim>::kShape;
      p.softcap = 0.0f;
      p.window = 0;
      p.sinks = p.slopes = nullptr;
      return p;
    }
  }
  __device__ __forceinline__ static Of<DecodeLaunch> launch(const DecodeLaunch& given) {
    if constexpr (!kPlain) {
      return given;
    } else {
      DecodeLaunch launch = given;
      launch.clusters = kSpecialization == DecodeSpecialization::kPlainCluster;
      launch.row_tiles = 1;
      if (kSpecialization == DecodeSpecialization::kPlainOneSplit) launch.kv_splits = 1;
      return launch;
    }
  }
  __device__ __forceinline__ static Of<FreshTokens> fresh(const FreshTokens& given) {
    if constexpr (!kPlain) {
      return given;
    } else {
      FreshTokens fresh = given;
      fresh.present = true;
      fresh.q.half = fresh.k.half = kDim / 2;
      fresh.q.interleaved = fresh.k.interleaved = false;
      fresh.write.k.shape = WholeRow<kTypes.k, kDim>::kShape;
      fresh.write.v.shape = WholeRow<kTypes.v, kDim>::kShape;
      return fresh;
    }
  }
};

// Whether a launch is plain attention (DecodeSpecialization) with heads of kDim elements.
template <int kDim>
bool is_plain(const AttentionParams& p, const DecodeLaunch& launch, const FreshTokens& fresh) {
  const auto ropes_whole_head = [](const RopeParameters& rope) {
    return rope.half == kDim / 2 && !rope.interleaved;
  };
  return p.k_row.dim == kDim && p.v_row.dim == kDim && p.window <= 0 && p.softcap <= 0.0f &&
         p.sinks == nullptr && p.slopes == nullptr && launch.row_tiles == 1 && fresh.present &&
         ropes_whole_head(fresh.q) && ropes_whole_head(fresh.k);
}

}  // namespace bl::cuda
