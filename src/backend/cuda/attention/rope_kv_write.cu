#include "backend/cuda/attention/rope_kv_write.h"

#include "backend/cuda/attention/kv_write.cuh"
#include "backend/cuda/attention/rope.cuh"
#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/token_units.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

struct FusedParameters {
  RopeParameters q;
  RopeParameters k;  // its x is not used
  KvWriteParameters write;
  int runs;                 // of 32 pairs, of a head of q
  int kv_units;             // of a token
  float2* turns = nullptr;  // [tokens][half] out, in place of turning q
};

// Units of keys and values come first: they take longest.
template <Widths kWidths>
__global__ void __launch_bounds__(kUnitWarps * 32) rope_kv_write_kernel(FusedParameters p) {
  extern __shared__ float2 table[];
  allow_next();
  dependency_wait();
  const std::int64_t t = blockIdx.x;
  fill_turns(p.q, t, table);
  float* row = p.q.x[t];
  for_units(p.kv_units + p.q.heads * p.runs, [&](int u) {
    if (u < p.kv_units) {
      write_unit<kWidths>(p.write, t, u,
                          [&](const float* x, int e) { return rotated_element(p.k, table, x, e); });
      return;
    }
    const int unit = u - p.kv_units;
    const int head = unit / p.runs;
    rotate_pairs(p.q, table, row + head * p.q.head_dim, (unit - head * p.runs) * 32);
  });
}

// ---- Many tokens, binary16 rows, pairs half a head apart: four elements a load, a CTA a token

using Four = Pack<float, 4>;

__device__ __forceinline__ void turn_four(const float2* table, int i, Four& a, Four& b) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float2 turn = table[i + e];
    const float first = turned_first(turn, a.at[e], b.at[e]);
    b.at[e] = turned_second(turn, a.at[e], b.at[e]);
    a.at[e] = first;
  }
}

__device__ __forceinline__ void store_halves(const Four& x, std::byte* to) {
  const Pack<std::uint16_t, 4> halves{{saturated_half(x.at[0]), saturated_half(x.at[1]),
                                       saturated_half(x.at[2]), saturated_half(x.at[3])}};
  store_pack(reinterpret_cast<std::uint16_t*>(to), halves);
}

// Row of a head in the slot of a token.
__device__ __forceinline__ std::byte* row_in_slot(const KvTarget& target, std::int64_t slot,
                                                  int head) {
  const std::int64_t row = std::int64_t{head} * kPageSlots + slot % kPageSlots;
  return target.pages + slot / kPageSlots * target.page_bytes + row * target.shape.bytes;
}

__global__ void __launch_bounds__(kUnitWarps * 32) rope_half_write_kernel(FusedParameters p) {
  extern __shared__ __align__(16) float2 table[];
  allow_next();
  dependency_wait();
  const std::int64_t t = blockIdx.x;
  const std::int64_t slot = p.write.slots[t];
  const auto thread = static_cast<int>(threadIdx.x);
  const int turns = p.q.half / 4;  // of a head
  const int v_fours = p.write.v.shape.dim / 4;
  for (int u = thread; u < p.write.heads * v_fours; u += kUnitWarps * 32) {
    const int head = u / v_fours;
    const int e = (u - head * v_fours) * 4;
    const Four x = load_pack<4>(p.write.v.x[t] + head * p.write.v.shape.dim + e);
    store_halves(x, row_in_slot(p.write.v, slot, head) + 2 * e);
  }
  fill_turns(p.q, t, table);
  if (p.turns != nullptr) {
    for (int i = thread; i < p.q.half; i += kUnitWarps * 32) p.turns[t * p.q.half + i] = table[i];
  }
  const int q_heads = p.turns == nullptr ? p.q.heads : 0;
  for (int u = thread; u < q_heads * turns; u += kUnitWarps * 32) {
    const int head = u / turns;
    const int i = (u - head * turns) * 4;
    float* at = p.q.x[t] + head * p.q.head_dim + i;
    Four a = load_pack<4>(at);
    Four b = load_pack<4>(at + p.q.half);
    turn_four(table, i, a, b);
    store_pack(at, a);
    store_pack(at + p.q.half, b);
  }
  const int rest = (p.write.k.shape.dim - 2 * p.q.half) / 4;  // that does not turn
  for (int u = thread; u < p.write.heads * (turns + rest); u += kUnitWarps * 32) {
    const int head = u / (turns + rest);
    const int part = u - head * (turns + rest);
    const float* from = p.write.k.x[t] + head * p.write.k.shape.dim;
    std::byte* to = row_in_slot(p.write.k, slot, head);
    if (part >= turns) {
      const int e = 2 * p.q.half + (part - turns) * 4;
      store_halves(load_pack<4>(from + e), to + 2 * e);
      continue;
    }
    const int i = part * 4;
    Four a = load_pack<4>(from + i);
    Four b = load_pack<4>(from + i + p.q.half);
    turn_four(table, i, a, b);
    store_halves(a, to + 2 * i);
    store_halves(b, to + 2 * (i + p.q.half));
  }
}

bool takes_fours(const RopeAndWriteArgs& args) {
  constexpr std::int64_t kManyTokens = 64;  // fewer are spread over more CTAs
  const KvLayout& layout = args.write.cache.layout;
  const auto fits = [](const TensorView& x) { return x.shape[2] % 4 == 0 && takes_packs(x, 4); };
  return args.q.x.shape[0] > kManyTokens && layout.type == CacheType::kF16 &&
         args.q.style == RopeStyle::kNeox && args.q.rotated % 8 == 0 && fits(args.q.x) &&
         fits(args.k.x) && fits(args.write.v) && is_aligned(args.write.cache.k, 8) &&
         is_aligned(args.write.cache.v, 8);
}

FusedParameters fused_parameters(const RopeAndWriteArgs& args) {
  const RopeArgs& q = args.q;
  const RopeArgs& k = args.k;
  const KvWriteArgs& write = args.write;
  BL_CHECK(q.positions == k.positions && q.variant == k.variant && q.rotated == k.rotated &&
           q.style == k.style && q.inv_freq.data == k.inv_freq.data &&
           q.scale.data == k.scale.data);
  BL_CHECK(k.x.data == write.k.data && k.x.shape[2] == write.cache.layout.k_dim);
  FusedParameters p{rope_parameters(q), rope_parameters(k), kv_write_parameters(write), 0, 0};
  p.runs = ceil_div(p.q.half, 32);
  p.kv_units = p.write.units();
  return p;
}

void launch_fours(ExecContext& ctx, const FusedParameters& p, std::int64_t tokens) {
  launch(shape_of(ctx, dim3(static_cast<unsigned>(tokens)), dim3(kUnitWarps * 32),
                  static_cast<std::size_t>(p.q.half) * sizeof(float2)),
         rope_half_write_kernel, p);
}

}  // namespace

bool leaves_turns(const RopeAndWriteArgs& args) { return takes_fours(args); }

void write_and_leave_turns(ExecContext& ctx, const RopeAndWriteArgs& args, float2* turns) {
  BL_CHECK(leaves_turns(args));
  FusedParameters p = fused_parameters(args);
  p.turns = turns;
  launch_fours(ctx, p, args.q.x.shape[0]);
}

void rope_and_write(ExecContext& ctx, const RopeAndWriteArgs& args) {
  const std::int64_t tokens = args.q.x.shape[0];
  if (tokens == 0) return;
  const FusedParameters p = fused_parameters(args);
  if (takes_fours(args)) {
    launch_fours(ctx, p, tokens);
    return;
  }
  const dim3 grid = unit_grid(ctx, tokens, p.kv_units + p.q.heads * p.runs);
  launch(shape_of(ctx, grid, dim3(kUnitWarps * 32),
                  static_cast<std::size_t>(p.q.half) * sizeof(float2)),
         p.write.widths() == Widths::kAny ? rope_kv_write_kernel<Widths::kAny>
                                          : rope_kv_write_kernel<Widths::kUsual>,
         p);
}

}  // namespace bl::cuda
